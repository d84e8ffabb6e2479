//! Path segments of API calls, and file paths.

use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::failure::{Failure, Result};

/// Percent-encodes one path segment, so that user input cannot change the path.
pub(crate) fn encode_segment(text: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escaped = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    match text {
        // These mean other segments, however they are encoded.
        "" | "." | ".." => Err(Failure::usage(format!("{text:?} is not a name or an ID"))),
        text => Ok(text.bytes().map(escaped).collect()),
    }
}

/// Resolves a file path against the current directory, with `~` for the home directory.
pub(crate) fn resolve_path(environment: &Environment, path: &Path) -> PathBuf {
    let full = match (path.strip_prefix("~"), &environment.home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => environment.directory.join(path),
    };
    // Removes `.` segments, because the path is shown to the user.
    full.components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_input_stays_one_segment() {
        assert_eq!(encode_segment("c-0a1b").unwrap(), "c-0a1b");
        assert_eq!(encode_segment("../admin?x#y z").unwrap(), "..%2Fadmin%3Fx%23y%20z");
        assert_eq!(encode_segment("ü").unwrap(), "%C3%BC");
        for part in ["", ".", ".."] {
            assert_eq!(encode_segment(part).unwrap_err().code(), 2);
        }
    }

    #[test]
    fn paths_resolve_against_the_current_directory() {
        let here = Environment { directory: "/work".into(), home: Some("/home/ann".into()), ..Environment::default() };
        for (path, full) in [(".", "/work"), ("./a/./b", "/work/a/b"), ("~/.ssh/x", "/home/ann/.ssh/x"), ("/x", "/x")] {
            assert_eq!(resolve_path(&here, path.as_ref()), Path::new(full));
        }
    }
}
