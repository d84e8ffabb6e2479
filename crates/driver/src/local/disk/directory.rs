//! Disks that are directories: those of instances from before disks had a limit, and of machines that cannot have one.

use std::io;
use std::path::Path;

use super::content;
use crate::local::host::{files, trees};
use crate::local::instance::record::Record;

/// Makes one, empty but for the name of its instance. It has its own name when it is whole, so that a crash leaves none or all of it.
pub(super) fn create_directory_disk(target: &Path, record: &Record) -> io::Result<()> {
    let disk = &target.with_extension("new");
    trees::remove_tree(disk)?;
    files::ensure_directory(disk, 0o700)?;
    content::create_layers(disk, &record.name, record.id_base)?;
    std::fs::rename(disk, target)
}
