//! The text that the shell of an attempt runs.
//!
//! All commands share one shell, so that `cd`, `export` and `set -e` of one hold for the next. Each goes through `eval`: a
//! command with a mistake in its grammar fails alone. Its status is looked at in a line of its own, because `set -e` does
//! nothing on the left of `||`.

use std::path::Path;

/// Makes a virtual environment and gives it a `pip`.
const MAKE_VENV: &str = include_str!("venv.py");

/// The whole text; `venv` is where the virtual environment should be, if there should be one.
pub(super) fn text(commands: &[String], venv: Option<&Path>) -> String {
    let mut text = venv.map(prepare).unwrap_or_default();
    for command in commands {
        text.push_str("eval ");
        text.push_str(&quoted(command));
        text.push_str("\ncase $? in 0) ;; *) exit $? ;; esac\n");
    }
    text
}

/// Makes the virtual environment unless an earlier attempt did, and enters it.
fn prepare(venv: &Path) -> String {
    let place = quoted(&venv.to_string_lossy());
    let make = quoted(MAKE_VENV);
    format!(
        "if [ -x {place}/bin/python3 ]; then :\n\
         elif command -v uv >/dev/null 2>&1 && uv venv --quiet --system-site-packages {place}; then \
         {place}/bin/python3 -I -c {make} {place}\n\
         elif command -v python3 >/dev/null 2>&1; then \
         python3 -I -c {make} {place} || echo 'tarn: the virtual environment could not be made.'\n\
         else echo 'tarn: there is no python3 here, and so no virtual environment.'; fi\n\
         if [ -x {place}/bin/python3 ]; then \
         export VIRTUAL_ENV={place} PATH={place}/bin:\"$PATH\"; unset PYTHONHOME; fi\n"
    )
}

/// A word that the shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stay_whole() {
        let text = text(&["echo 'a'".into()], None);
        assert_eq!(text, "eval 'echo '\\''a'\\'''\ncase $? in 0) ;; *) exit $? ;; esac\n");
    }
}
