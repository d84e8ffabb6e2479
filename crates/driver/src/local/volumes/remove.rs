//! Removes a volume with its data.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::ids::VolumeId;

use super::pool;
use crate::Error;
use crate::local::host::files;
use crate::local::host::loop_device::{self, FileIdentity};
use crate::local::host::paths::InstallationPaths;
use crate::local::instance::observe;
use crate::local::local_host::{LocalHost, blocking};

/// The delay between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// How often to check whether a device that no instance uses is detached.
const TRIES: u32 = 1_000;

/// Removes the volume; succeeds when it does not exist. Refused while an instance or any other process has it open.
pub(in crate::local) async fn remove_volume(host: &LocalHost, id: &VolumeId) -> Result<(), Error> {
    host.volumes.check_pool_present(&host.paths)?;
    let _one_at_a_time = host.lock(id).await;
    let device_guard = Arc::new(host.lock(&super::device_lock_name(id)).await);
    for _ in 0..TRIES {
        let (paths, own, device_guard) = (host.paths.clone(), id.clone(), device_guard.clone());
        let removed = blocking("the volume could not be removed", move || {
            let _device_guard = device_guard;
            try_remove(&paths, &own)
        });
        if removed.await? {
            return Ok(());
        }
        // The kernel takes a moment to release the mounts of an instance that has just ended.
        if observe::observe_instances(host)?.instances.values().any(|instance| instance.volumes.contains(id)) {
            return Err(Error::Permanent(format!("volume {id} is mounted in an instance")));
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::warn!(%id, "a process on the host outside of instances has a volume open");
    Err(Error::Permanent(format!("volume {id} is in use on the host outside of instances; ask the operator")))
}

/// Removes the volume; returns `false` when it is in use.
fn try_remove(paths: &InstallationPaths, id: &VolumeId) -> io::Result<bool> {
    let (directory, aside) = (paths.volume_directory(id), paths.volume_directory(id).with_extension(pool::REMOVED));
    files::remove_tree(&aside)?;
    if is_file_in_use(&paths.volume_file(id))? {
        return Ok(false);
    }
    match fs::rename(&directory, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        moved => moved?,
    }
    files::sync_directory(&paths.pool)?;
    files::remove_tree(&aside)?;
    files::sync_directory(&paths.pool)?;
    Ok(true)
}

/// Returns whether a device has the file, or had it when it was moved away.
fn is_file_in_use(path: &Path) -> io::Result<bool> {
    let file = match fs::metadata(path) {
        Ok(found) => Some(FileIdentity::of(&found)),
        Err(error) if pool::is_missing(&error) => None,
        Err(error) => return Err(error),
    };
    let devices = loop_device::scan_devices()?;
    let is_here = file.is_some_and(|file| devices.find(file).is_some());
    Ok(is_here || devices.has_replaced_file(path, file) || devices.unseen.iter().any(|name| Path::new(name) == path))
}
