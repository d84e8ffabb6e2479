//! Opening a volume: its loop device, found or made.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::ids::VolumeId;

use super::device::{self, Device};
use super::faults::Fault;
use super::look::{self, Volume};
use crate::Error;
use crate::local::local_host::{LocalHost, blocking};
use crate::local::places::Places;

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(2);

/// So often a device is looked at that is just going away.
const TRIES: u32 = 1_000;

/// Opens a volume. One volume never has two devices: they would be two filesystems on the same blocks.
pub(in crate::local) async fn open(host: &LocalHost, id: &VolumeId) -> Result<Device, Error> {
    host.volumes.mkfs()?;
    host.volumes.check(&host.places)?;
    // Whoever stops waiting does not stop the work that has begun, so the work itself holds the lock.
    let turn = Arc::new(host.lock(&super::device_lock(id)).await);
    for _ in 0..TRIES {
        let (places, id, turn) = (host.places.clone(), id.clone(), turn.clone());
        let found = blocking("the volume could not be opened", move || {
            let _turn = turn;
            attempt(&places, &id)
        });
        if let Some(device) = found.await?? {
            return Ok(device);
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::warn!(%id, "the loop device of a volume stays unusable: it does not go away, or /dev does not show it");
    Err(Error::Retry("the volume could not be opened: its device is busy".into()))
}

/// Finds or makes the device; `None` when one is just going away.
fn attempt(places: &Places, id: &VolumeId) -> io::Result<Result<Option<Device>, Error>> {
    let file = match look::inspect(places, id)? {
        Volume::Sound { file, .. } => file,
        Volume::Faulty { fault, .. } => return Ok(Err(fault.refusal(id))),
        Volume::Absent => return Ok(Err(Error::Permanent(format!("there is no volume {id}")))),
    };
    let devices = device::scan()?;
    let path = places.volume_file(id);
    if let Err(fault) = look::live(devices.of(file)) {
        return Ok(Err(fault.refusal(id)));
    }
    if devices.has_former(&path, Some(file)) {
        return Ok(Err(Fault::Replaced.refusal(id)));
    }
    if devices.unseen.iter().any(|name| Path::new(name) == path) {
        return Ok(Ok(None));
    }
    match devices.take(file) {
        Some(device) => Ok(Ok(Some(device))),
        None => device::make(&File::options().read(true).write(true).open(path)?).map(Ok),
    }
}
