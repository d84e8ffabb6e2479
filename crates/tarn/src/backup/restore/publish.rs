//! The end of a restore: everything gets its final name, and what survived becomes that of the new installation.

use std::fs::File;
use std::io;
use std::path::Path;

use tarn_base::files;

use super::prepared::{Record, discard};
use super::target::Target;
use crate::failure::{Failure, Result};

/// Gives everything its final name. From the moment on at which the data directory has its own, the new installation
/// exists; until then the former one can use what survived. What is left to do after that moment, the first engine does
/// as well.
pub(super) fn publish(target: Target) -> Result<()> {
    let failed = |e: io::Error| Failure::with_cause("cannot complete the restore", e);
    let disk = |path: &Path| File::open(path).and_then(|file| Ok(rustix::fs::syncfs(&file)?));
    disk(&target.data).and_then(|()| disk(&target.objects)).map_err(failed)?;
    if let Some(place) = &target.final_objects {
        files::publish_file(&target.objects, place).map_err(failed)?;
    }
    files::publish_file(&target.data, &target.final_data).map_err(failed)?;
    let left =
        |e: io::Error| Failure::with_cause("the restore is complete, but something was left to the first start", e);
    if let Some(pool) = target.claimed {
        pool.publish(&target.final_data).map_err(left)?;
    }
    if let Some(surviving) = &target.surviving {
        surviving.publish(&target.final_data, &target.mark)?;
    }
    Record::remove(&target.final_data).map_err(left)
}

/// Removes what was prepared. Another failure leaves it to the next restore into this directory.
pub(super) fn give_up(mut target: Target) {
    let Some(data) = target.held.pop() else { return };
    // Nothing of this process may keep it from what it removes.
    target.held.clear();
    drop(target.claimed.take());
    let _ = discard(data);
}
