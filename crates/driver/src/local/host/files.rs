//! Files that must be whole and on disk when a function returns.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Replaces a file: a crash leaves the old one or the new one, and when this returns it is the new one.
pub(in crate::local) fn write_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let parent = path.parent().ok_or_else(|| io::Error::other("a file has a directory"))?;
    let mut name = path.file_name().ok_or_else(|| io::Error::other("a file has a name"))?.to_owned();
    name.push(".new");
    let next = parent.join(name);
    let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(&next)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    sync_directory(parent)
}

/// Makes what was made or removed in a directory last.
pub(in crate::local) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes a directory with exactly this mode, whatever the umask; one that exists gets the mode.
pub(in crate::local) fn ensure_directory(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Whether an error says that there is no such thing, which is what whoever removes it wants.
pub(in crate::local) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
