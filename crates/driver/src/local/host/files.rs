//! Files that must be complete and on disk when a function returns.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use tarn_base::files::replace_file;

/// Replaces a file atomically and durably. The file beside it has a fixed name, so that crashes leave at most one.
pub(in crate::local) fn write_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    replace_file(path, Path::new(&beside), content, mode)
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
