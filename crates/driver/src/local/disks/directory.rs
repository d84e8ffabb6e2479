//! Disks that are directories: those of instances from before disks had a limit, and of machines that cannot have one.

use std::io;
use std::path::Path;

use super::content;
use crate::local::record::Record;
use crate::local::{files, trees};

/// Makes one, empty but for the name of its instance. It has its own name when it is whole, so that a crash leaves none or all of it.
pub(super) fn make(place: &Path, record: &Record) -> io::Result<()> {
    let disk = &place.with_extension("new");
    trees::remove(disk)?;
    files::ensure_directory(disk, 0o700)?;
    content::make(disk, &record.name, record.id_base)?;
    std::fs::rename(disk, place)
}
