//! Removing a volume with its data, for good.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::ids::VolumeId;

use super::device::{self, Identity};
use super::pool;
use crate::Error;
use crate::local::local_host::{LocalHost, blocking};
use crate::local::places::Places;
use crate::local::{files, observe, trees};

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(5);

/// So often it is looked whether a device goes away that no instance uses.
const TRIES: u32 = 1_000;

/// Removes the volume; what is not there is removed already. Refused while an instance, or whoever else, has it open.
pub(in crate::local) async fn remove(host: &LocalHost, id: &VolumeId) -> Result<(), Error> {
    host.volumes.check(&host.places)?;
    let _one_at_a_time = host.lock(id).await;
    let turn = Arc::new(host.lock(&super::device_lock(id)).await);
    for _ in 0..TRIES {
        let (places, own, turn) = (host.places.clone(), id.clone(), turn.clone());
        let removed = blocking("the volume could not be removed", move || {
            let _turn = turn;
            attempt(&places, &own)
        });
        if removed.await? {
            return Ok(());
        }
        // The kernel takes a moment to take apart what an instance had that has just ended.
        if observe::all(host)?.instances.values().any(|instance| instance.volumes.contains(id)) {
            return Err(Error::Permanent(format!("volume {id} is mounted in an instance")));
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::warn!(%id, "something on the machine besides its instances has a volume open");
    Err(Error::Permanent(format!("volume {id} is in use on the machine; ask the operator")))
}

/// Removes the volume, or says that it is in use.
fn attempt(places: &Places, id: &VolumeId) -> io::Result<bool> {
    let (place, aside) = (places.volume(id), places.volume(id).with_extension(pool::REMOVED));
    trees::remove(&aside)?;
    if is_open(&places.volume_file(id))? {
        return Ok(false);
    }
    match fs::rename(&place, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        moved => moved?,
    }
    files::sync_directory(&places.pool)?;
    trees::remove(&aside)?;
    files::sync_directory(&places.pool)?;
    Ok(true)
}

/// Whether a device has the file, or had it when somebody took it away.
fn is_open(path: &Path) -> io::Result<bool> {
    let file = match fs::metadata(path) {
        Ok(found) => Some(Identity::of(&found)),
        Err(error) if pool::is_missing(&error) => None,
        Err(error) => return Err(error),
    };
    let devices = device::scan()?;
    let is_here = file.is_some_and(|file| devices.of(file).is_some());
    Ok(is_here || devices.has_former(path, file) || devices.unseen.iter().any(|name| Path::new(name) == path))
}
