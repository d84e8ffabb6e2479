//! Parses a command line for an image without a shell, and finds the program that its first word names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::users::images::is_executable_file;

/// Splits a line like a shell, but expands nothing: blanks separate words, quotes and backslashes keep them together.
/// `None` if a quote is not closed.
pub(super) fn split_command_line(line: &[u8]) -> Option<Vec<OsString>> {
    let (mut words, mut word, mut quote): (Vec<OsString>, Option<Vec<u8>>, Option<u8>) = (Vec::new(), None, None);
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (None, b' ' | b'\t' | b'\n') => words.extend(word.take().map(OsString::from_vec)),
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == byte => quote = None,
            (None, b'\\') => word.get_or_insert_default().extend(bytes.next()),
            // Between double quotes a backslash escapes only a few characters.
            (Some(b'"'), b'\\') => {
                let next = bytes.next()?;
                let word = word.get_or_insert_default();
                if !b"\"\\$`".contains(&next) {
                    word.push(byte);
                }
                word.push(next);
            }
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word.map(OsString::from_vec));
    quote.is_none().then_some(words)
}

/// Finds a program: a name with a slash is a path relative to `directory`, other names are searched on the path.
pub(super) fn find_program(name: &OsStr, path: Option<&OsString>, directory: &Path) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(directory.join(name)).filter(|program| is_executable_file(program));
    }
    let directories = std::env::split_paths(path.map_or(OsStr::new(""), OsString::as_os_str));
    directories
        .map(|directory| directory.join(name))
        .find(|program| program.is_absolute() && is_executable_file(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line is split into words like a shell does.
    #[test]
    fn command_line_splits_like_a_shell() {
        let words = |line: &str| {
            split_command_line(line.as_bytes()).map(|words| words.join(OsStr::new("|")).into_string().unwrap())
        };
        for (line, wanted) in [
            ("", ""),
            ("  a  b\tc\n", "a|b|c"),
            ("a 'b c' \"d e\"f", "a|b c|d ef"),
            ("a '' \"\"", "a||"),
            (r"a\ b \'c", "a b|'c"),
            (r#""a\"b\\c\d$x" 'e\f'"#, r#"a"b\c\d$x|e\f"#),
            ("a;b|c $HOME *", "a;b|c|$HOME|*"),
        ] {
            assert_eq!(words(line).as_deref(), Some(wanted), "{line}");
        }
        for open in ["'a", "a \"b", "\"a\\"] {
            assert_eq!(words(open), None, "{open}");
        }
    }

    /// Programs are found by path and by name.
    #[test]
    fn find_program_by_path_and_name() {
        let found = |name: &str| find_program(OsStr::new(name), Some(&"/nowhere:/bin:relative".into()), Path::new("/"));
        assert_eq!(found("ls"), Some("/bin/ls".into()));
        assert_eq!(found("/bin/ls"), Some("/bin/ls".into()));
        assert_eq!(found("bin/ls"), Some("/bin/ls".into()));
        assert_eq!((found("no-such-program"), found("/bin"), found("/nowhere")), (None, None, None));
    }
}
