//! Volumes: files in a pool, each with a filesystem of its own.
//!
//! A volume is in place or it is not: it is made and removed under another name. Whatever is in place was formatted once, its
//! label carries its id, and what does not look like that has a fault and is left alone. A loop device shows the file to the
//! kernel while somebody uses it; mounting that is not done here, and nothing here appears among the mounts of the machine.
//!
//! Start reading at `ensure`, then `open` and `look`.

mod device;
mod ensure;
mod faults;
mod grow;
mod kernel;
mod look;
mod make;
mod open;
mod pool;
mod probe;
mod remove;
mod superblock;
mod tools;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use tarn_model::ids::VolumeId;

pub(super) use device::{
    Device, Identity, abandoned, has_any as has_device, make_for as make_device, open as open_device,
};
pub(super) use ensure::ensure;
pub(super) use faults::{damaged, unreadable};
pub(super) use look::{all, in_pool, one};
pub(super) use open::open;
pub(super) use pool::{Used, half_made, open as open_pool, sweep, used};
pub(super) use remove::remove;

use super::local_host::{LocalHost, blocking};
use super::places::Places;
use crate::Error;
use tools::Tools;

/// What all verbs about volumes share.
pub(super) struct Volumes {
    tools: Result<Tools, String>,
    /// The directory of the pool, locked for as long as this engine uses it.
    alone: File,
}

impl Volumes {
    /// Looks for what volumes need. A machine that lacks it has instances all the same.
    pub(super) fn new(alone: File) -> Self {
        let tools = tools::find();
        if let Err(why) = &tools {
            tracing::warn!("{why}");
        }
        Volumes { tools, alone }
    }

    /// Whether there can be volumes.
    pub(super) fn supported(&self) -> bool {
        self.tools.is_ok()
    }

    /// The program that makes a filesystem, on a machine where there can be volumes.
    pub(super) fn mkfs(&self) -> Result<PathBuf, Error> {
        let tools = self.tools.as_ref().map_err(|why| Error::Unsupported(why.clone()))?;
        Ok(tools.mkfs.clone())
    }

    /// Refuses while another directory lies where the pool was: its volumes would seem to be gone.
    fn check(&self, places: &Places) -> Result<(), Error> {
        let same =
            || Ok::<_, io::Error>(Identity::of(&self.alone.metadata()?) == Identity::of(&fs::metadata(&places.pool)?));
        if same().unwrap_or(false) {
            return Ok(());
        }
        tracing::warn!(pool = %places.pool.display(), "the pool is not there any more: is its disk mounted?");
        Err(Error::Retry("the disk of the volumes is not there; the operator has to bring it back".into()))
    }
}

/// How many bytes all volumes may have together.
pub(super) async fn capacity(host: &LocalHost) -> Result<u64, Error> {
    host.volumes.check(&host.places)?;
    let places = host.places.clone();
    blocking("the room for volumes could not be measured", move || pool::capacity(&places)).await
}

/// The volumes that have a loop device now, by its number.
pub(super) fn opened(host: &LocalHost) -> io::Result<BTreeMap<u64, VolumeId>> {
    let mut files = BTreeMap::new();
    for id in pool::volumes(&host.places.pool)? {
        if let Ok(file) = fs::metadata(host.places.volume_file(&id)) {
            files.insert(Identity::of(&file), id);
        }
    }
    let devices = device::scan()?.all.into_iter();
    Ok(devices.filter_map(|device| files.get(&device.file).map(|id| (device.number, id.clone()))).collect())
}

/// The name of the lock under which the device of a volume is looked for and made. It is not the one of the verbs, because
/// those wait for helpers, which may be busy with instances whose start needs the device.
fn device_lock(id: &VolumeId) -> String {
    format!("{id} device")
}
