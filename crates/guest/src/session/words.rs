//! A command line where there is no shell: its words, and the program that the first of them names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::images::is_program;

/// Takes a line apart as a shell would, but nothing in it is expanded: blanks divide words, quotes and backslashes keep them
/// together. `None` if a quote is never closed.
pub(super) fn split(line: &[u8]) -> Option<Vec<OsString>> {
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
            // Between double quotes a backslash means something before few others only.
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

/// The program of a name: one with a slash is a path that begins where the program will, others are looked for on a path.
pub(super) fn find(name: &OsStr, path: Option<&OsString>, directory: &Path) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(directory.join(name)).filter(|program| is_program(program));
    }
    let directories = std::env::split_paths(path.map_or(OsStr::new(""), OsString::as_os_str));
    directories.map(|directory| directory.join(name)).find(|program| program.is_absolute() && is_program(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_a_shell_would_make_of_them() {
        let words = |line: &str| split(line.as_bytes()).map(|words| words.join(OsStr::new("|")).into_string().unwrap());
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

    #[test]
    fn programs_are_found_by_path_and_by_name() {
        let found = |name: &str| find(OsStr::new(name), Some(&"/nowhere:/bin:relative".into()), Path::new("/"));
        assert_eq!(found("ls"), Some("/bin/ls".into()));
        assert_eq!(found("/bin/ls"), Some("/bin/ls".into()));
        assert_eq!(found("bin/ls"), Some("/bin/ls".into()));
        assert_eq!((found("no-such-program"), found("/bin"), found("/nowhere")), (None, None, None));
    }
}
