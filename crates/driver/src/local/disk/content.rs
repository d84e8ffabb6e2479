//! The content of a new disk: the writable layers of the root filesystem, empty except for the host name.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

use crate::local::host::files;
use crate::local::instance::record::Record;

/// The layer that holds the host name. It is created last, so its existence means that all layers are complete.
const UPPER_LAYER: &str = "upper";

/// Creates the layers unless they exist. Only the first time may the engine write there: afterwards the tenant controls
/// every name below the layers.
pub(in crate::local) fn create_layers(disk: &Path, name: &str, owner: u32) -> io::Result<()> {
    if disk.join(UPPER_LAYER).exists() {
        return Ok(());
    }
    let own = |path: &Path| chown(path, Some(owner), Some(owner));
    let first = disk.join("first");
    files::remove_tree(&first)?;
    for layer in ["work", "usr-upper", "usr-work", "first", "first/etc"] {
        files::ensure_directory(&disk.join(layer), 0o755)?;
        own(&disk.join(layer))?;
    }
    let hostname = first.join("etc/hostname");
    fs::write(&hostname, format!("{name}\n"))?;
    own(&hostname)?;
    fs::rename(first, disk.join(UPPER_LAYER))
}

/// Creates a disk that is a directory, for a host without XFS or loop devices. It gets its name when it is complete, so
/// a crash leaves none or all of it.
pub(super) fn create_directory_disk(target: &Path, record: &Record) -> io::Result<()> {
    let disk = &target.with_extension("new");
    files::remove_tree(disk)?;
    files::ensure_directory(disk, 0o700)?;
    create_layers(disk, &record.name, record.id_base)?;
    fs::rename(disk, target)
}
