//! Opens a volume: finds its loop device or attaches one.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::ids::VolumeId;

use super::inspection::{self, Fault, VolumeState};
use crate::Error;
use crate::local::host::loop_device::{self, LoopDevice};
use crate::local::host::paths::InstallationPaths;
use crate::local::local_host::{LocalHost, blocking};

/// The delay between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// How often to check a device that is being detached.
const TRIES: u32 = 1_000;

/// Opens a volume. A volume never has two devices: they would be two filesystems on the same blocks.
pub(in crate::local) async fn open_volume(host: &LocalHost, id: &VolumeId) -> Result<LoopDevice, Error> {
    host.volumes.mkfs()?;
    host.volumes.check_pool_present(&host.paths)?;
    // A caller that stops waiting does not stop work that has started, so the work itself holds the lock.
    let device_guard = Arc::new(host.lock(&super::device_lock_name(id)).await);
    for _ in 0..TRIES {
        let (paths, id, device_guard) = (host.paths.clone(), id.clone(), device_guard.clone());
        let found = blocking("the volume could not be opened", move || {
            let _device_guard = device_guard;
            try_open(&paths, &id)
        });
        if let Some(device) = found.await?? {
            return Ok(device);
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::warn!(%id, "the loop device of a volume stays unusable: it is not detached, or /dev lacks it");
    Err(Error::Retry("the volume could not be opened: its device is busy".into()))
}

/// Finds or attaches the device; `None` when one is just being detached.
fn try_open(paths: &InstallationPaths, id: &VolumeId) -> io::Result<Result<Option<LoopDevice>, Error>> {
    let file = match inspection::inspect_file(paths, id)? {
        VolumeState::Sound { file, .. } => file,
        VolumeState::Faulty { fault, .. } => return Ok(Err(fault.refusal(id))),
        VolumeState::Absent => return Ok(Err(Error::Permanent(format!("there is no volume {id}")))),
    };
    let devices = loop_device::scan_devices()?;
    let path = paths.volume_file(id);
    if let Err(fault) = inspection::probe_live(devices.find(file)) {
        return Ok(Err(fault.refusal(id)));
    }
    if devices.has_replaced_file(&path, Some(file)) {
        return Ok(Err(Fault::Replaced.refusal(id)));
    }
    if devices.unseen.iter().any(|name| Path::new(name) == path) {
        return Ok(Ok(None));
    }
    match devices.into_device(file) {
        Some(device) => Ok(Ok(Some(device))),
        None => loop_device::attach_file(&File::options().read(true).write(true).open(path)?).map(Ok),
    }
}
