//! Files that must be complete and on disk when a function returns.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Replaces a file atomically and durably: a crash leaves the old content or the new one.
pub(in crate::local) fn write_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let parent = path.parent().ok_or_else(|| io::Error::other("the path has no parent directory"))?;
    let mut name = path.file_name().ok_or_else(|| io::Error::other("the path has no file name"))?.to_owned();
    name.push(".new");
    let next = parent.join(name);
    let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(&next)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    sync_directory(parent)
}

/// Makes the creation and removal of directory entries durable.
pub(in crate::local) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Creates a directory with exactly this mode, regardless of the umask. An existing directory gets the mode.
pub(in crate::local) fn ensure_directory(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Treats "not found" as success, for removals.
pub(in crate::local) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
