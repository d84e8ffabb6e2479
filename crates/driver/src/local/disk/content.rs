//! What is on the disk of a new instance: the layers of its root, empty but for its name.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

use crate::local::host::{files, trees};

/// The layer that holds the name of the instance. It has its name last: where it is, everything is.
const UPPER_LAYER: &str = "upper";

/// Makes it, unless it is there. Only the first time may anybody but the instance write there: afterwards every name below the
/// layers is the tenant's to shape.
pub(in crate::local) fn create_layers(disk: &Path, name: &str, owner: u32) -> io::Result<()> {
    if disk.join(UPPER_LAYER).exists() {
        return Ok(());
    }
    let own = |path: &Path| chown(path, Some(owner), Some(owner));
    let first = disk.join("first");
    trees::remove_tree(&first)?;
    for place in ["work", "usr-upper", "usr-work", "first", "first/etc"] {
        files::ensure_directory(&disk.join(place), 0o755)?;
        own(&disk.join(place))?;
    }
    let hostname = first.join("etc/hostname");
    fs::write(&hostname, format!("{name}\n"))?;
    own(&hostname)?;
    fs::rename(first, disk.join(UPPER_LAYER))
}
