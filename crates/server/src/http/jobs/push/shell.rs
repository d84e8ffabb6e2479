//! What the commands of a push have in common where there is a POSIX shell: they must notice every failure, say what it is in
//! words, and leave nothing behind.

/// How the temporary directories of a push begin.
pub(super) const TEMPORARY: &str = "tarn-push.";

/// How a command ends badly. Options that people have set for `tar` and `gzip` would change what is made.
pub(super) const PRELUDE: &str = "\
fail() { echo \"$1\" >&2; exit 1; }
unset TAR_OPTIONS GZIP
";

/// A temporary directory `$d` that is gone afterwards, however the command ends.
pub(super) const TEMPORARY_DIRECTORY: &str = "\
d=$(mktemp -d \"${TMPDIR:-/tmp}/tarn-push.XXXXXXXX\") || fail 'cannot make a temporary directory'
trap 'rm -rf \"$d\"' EXIT
trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM
";

/// A text as one word of the shell.
pub(super) fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_word_is_understood_by_the_shell() {
        for text in ["", "plain", "it's", "$(id) `id` \\ \" ; & | * ?", "two\nlines", "''"] {
            let script = format!("printf %s {}", shell_quoted(text));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
