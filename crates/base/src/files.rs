//! Files that must be complete and on disk when a function returns.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Replaces a file atomically and durably through a file beside it: a crash leaves the old content or the new one.
pub fn replace_file(path: &Path, beside: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write_file(beside, content, mode)?;
    publish_file(beside, path).inspect_err(|_| drop(fs::remove_file(beside)))
}

/// Writes a new file and syncs it; [`publish_file`] puts it in place. It has its mode from the first moment, also if a
/// crash left a file of this name. A failure leaves none.
pub fn write_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    fs::remove_file(path).or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    let mut file = File::options().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content).and_then(|()| file.sync_all()).inspect_err(|_| drop(fs::remove_file(path)))
}

/// Renames a synced file to its final name, durably.
pub fn publish_file(prepared: &Path, path: &Path) -> io::Result<()> {
    fs::rename(prepared, path)?;
    sync_parent(path)
}

/// Makes the creation or the removal of a path durable.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn file_is_replaced_and_has_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let (path, beside) = (directory.path().join("key"), directory.path().join("key.new"));
        // What a crash left neither keeps its mode nor is followed.
        fs::write(directory.path().join("other"), "other").unwrap();
        std::os::unix::fs::symlink(directory.path().join("other"), &beside).unwrap();
        for content in ["old", "new"] {
            replace_file(&path, &beside, content.as_bytes(), 0o600).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert!(!beside.exists());
            fs::write(&beside, "a leftover that others can read").unwrap();
        }
        assert_eq!(fs::read_to_string(directory.path().join("other")).unwrap(), "other");
    }

    #[test]
    fn failure_keeps_the_old_content_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (path, beside) = (directory.path().join("taken"), directory.path().join("new"));
        fs::create_dir(&path).unwrap();
        replace_file(&path, &beside, b"x", 0o600).unwrap_err();
        assert!(path.is_dir() && !beside.exists());
    }
}
