//! Paths of the API and of files.

use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::surroundings::Surroundings;

/// One part of a path of the API: whatever somebody types, it stays one part.
pub(crate) fn segment(text: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escaped = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    match text {
        // These stand for other parts, however they are written.
        "" | "." | ".." => Err(Failure::usage(format!("{text:?} is neither a name nor an ID"))),
        text => Ok(text.bytes().map(escaped).collect()),
    }
}

/// A path of a file, with `~` for the home.
pub(crate) fn expand(surroundings: &Surroundings, path: &Path) -> PathBuf {
    let full = match (path.strip_prefix("~"), &surroundings.home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => surroundings.directory.join(path),
    };
    // Without the parts that stand for nothing: people read it.
    full.components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_typed_stays_one_part() {
        assert_eq!(segment("c-0a1b").unwrap(), "c-0a1b");
        assert_eq!(segment("../admin?x#y z").unwrap(), "..%2Fadmin%3Fx%23y%20z");
        assert_eq!(segment("ü").unwrap(), "%C3%BC");
        for part in ["", ".", ".."] {
            assert_eq!(segment(part).unwrap_err().code(), 2);
        }
    }

    #[test]
    fn paths_begin_where_the_command_was_given() {
        let here =
            Surroundings { directory: "/work".into(), home: Some("/home/ann".into()), ..Surroundings::default() };
        for (path, full) in [(".", "/work"), ("./a/./b", "/work/a/b"), ("~/.ssh/x", "/home/ann/.ssh/x"), ("/x", "/x")] {
            assert_eq!(expand(&here, path.as_ref()), Path::new(full));
        }
    }
}
