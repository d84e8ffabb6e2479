//! The script that the shell of an attempt runs.
//!
//! All commands share one shell, so that `cd`, `export` and `set -e` of one affect the next. Each is run by `eval`, so
//! that a syntax error fails only its own command. The status is checked on a separate line, because `set -e` has no
//! effect on the left of `||`.

use std::path::Path;

/// Creates a virtual environment and gives it a `pip`.
const MAKE_VENV: &str = include_str!("venv.py");

/// Builds the script; `venv` is the directory of the virtual environment, if the job has one.
pub(in crate::jobs) fn build_script(commands: &[String], venv: Option<&Path>) -> String {
    let mut text = venv.map(venv_prelude).unwrap_or_default();
    for command in commands {
        text.push_str("eval ");
        text.push_str(&shell_quote(command));
        text.push_str("\ncase $? in 0) ;; *) exit $? ;; esac\n");
    }
    text
}

/// Creates the virtual environment unless an earlier attempt did, and activates it.
fn venv_prelude(venv: &Path) -> String {
    let path = shell_quote(&venv.to_string_lossy());
    let make = shell_quote(MAKE_VENV);
    format!(
        "if [ -x {path}/bin/python3 ]; then :\n\
         elif command -v uv >/dev/null 2>&1 && uv venv --quiet --system-site-packages {path}; then \
         {path}/bin/python3 -I -c {make} {path}\n\
         elif command -v python3 >/dev/null 2>&1; then \
         python3 -I -c {make} {path} || echo 'tarn: the virtual environment could not be made.'\n\
         else echo 'tarn: there is no python3 here, and so no virtual environment.'; fi\n\
         if [ -x {path}/bin/python3 ]; then \
         export VIRTUAL_ENV={path} PATH={path}/bin:\"$PATH\"; unset PYTHONHOME; fi\n"
    )
}

/// Quotes a word for the shell.
fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands reach `eval` unchanged.
    #[test]
    fn script_quotes_commands() {
        let text = build_script(&["echo 'a'".into()], None);
        assert_eq!(text, "eval 'echo '\\''a'\\'''\ncase $? in 0) ;; *) exit $? ;; esac\n");
    }
}
