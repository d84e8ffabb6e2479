//! What the commands of a push for a POSIX shell share: they notice every failure, report it and clean up.

/// The prefix of the temporary directories of a push.
pub(super) const TEMPORARY: &str = "tarn-push.";

/// Defines `fail`, and clears options of `tar` and `gzip` that would change the archive.
pub(super) const PRELUDE: &str = "\
fail() { echo \"$1\" >&2; exit 1; }
unset TAR_OPTIONS GZIP
";

/// Creates a temporary directory `$d` that is removed however the command ends.
pub(super) const TEMPORARY_DIRECTORY: &str = "\
d=$(mktemp -d \"${TMPDIR:-/tmp}/tarn-push.XXXXXXXX\") || fail 'cannot make a temporary directory'
trap 'rm -rf \"$d\"' EXIT
trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM
";

/// Quotes a text as one word of the shell.
pub(super) fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quoted text is literal for the shell.
    #[test]
    fn quoted_text_is_literal() {
        for text in ["", "plain", "it's", "$(id) `id` \\ \" ; & | * ?", "two\nlines", "''"] {
            let script = format!("printf %s {}", shell_quoted(text));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
