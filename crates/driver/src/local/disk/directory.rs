//! Disks that are directories: those of instances older than the size limit, and those on hosts without XFS or loop
//! devices.

use std::io;
use std::path::Path;

use super::content;
use crate::local::host::{files, trees};
use crate::local::instance::record::Record;

/// Creates a disk that is empty except for the host name. It gets its name when it is complete, so a crash leaves none
/// or all of it.
pub(super) fn create_directory_disk(target: &Path, record: &Record) -> io::Result<()> {
    let disk = &target.with_extension("new");
    trees::remove_tree(disk)?;
    files::ensure_directory(disk, 0o700)?;
    content::create_layers(disk, &record.name, record.id_base)?;
    std::fs::rename(disk, target)
}
