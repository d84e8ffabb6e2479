//! Volumes: files in a pool, each with a filesystem of its own.
//!
//! A volume is in place or it is not: it is made and removed under another name. Whatever is in place was formatted once, its
//! label carries its id, and what does not look like that has a fault and is left pool_lock. A loop device shows the file to the
//! kernel while somebody uses it; mounting that is not done here, and nothing here appears among the mounts of the machine.
//!
//! Start reading at `ensure`, then `open` and `look`.

mod create;
mod ensure;
mod grow;
mod inspection;
mod open;
mod pool;
mod remove;
mod tools;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use tarn_model::ids::VolumeId;

pub(super) use ensure::ensure_volume;
pub(super) use inspection::{observe_pool, observe_volume, observe_volumes, report_damage, report_unreadable};
pub(super) use open::open_volume;
pub(super) use pool::{PoolUsage, measure_pool, open_pool, sweep_pool, unfinished_entries};
pub(super) use remove::remove_volume;

use crate::Error;
use crate::local::host::loop_device::{self, FileIdentity};
use crate::local::host::paths::InstallationPaths;
use crate::local::local_host::{LocalHost, blocking};
use tools::Tools;

/// What all verbs about volumes share.
pub(super) struct Volumes {
    tools: Result<Tools, String>,
    /// The directory of the pool, locked for as long as this engine uses it.
    pool_lock: File,
}

impl Volumes {
    /// Looks for what volumes need. A machine that lacks it has instances all the same.
    pub(super) fn new(pool_lock: File) -> Self {
        let tools = tools::find_tools();
        if let Err(why) = &tools {
            tracing::warn!("{why}");
        }
        Volumes { tools, pool_lock }
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
    fn check_pool_present(&self, paths: &InstallationPaths) -> Result<(), Error> {
        let same = || {
            Ok::<_, io::Error>(
                FileIdentity::of(&self.pool_lock.metadata()?) == FileIdentity::of(&fs::metadata(&paths.pool)?),
            )
        };
        if same().unwrap_or(false) {
            return Ok(());
        }
        tracing::warn!(pool = %paths.pool.display(), "the pool is not there any more: is its disk mounted?");
        Err(Error::Retry("the disk of the volumes is not there; the operator has to bring it back".into()))
    }
}

/// How many bytes all volumes may have together.
pub(super) async fn volume_capacity(host: &LocalHost) -> Result<u64, Error> {
    host.volumes.check_pool_present(&host.paths)?;
    let paths = host.paths.clone();
    blocking("the room for volumes could not be measured", move || pool::pool_capacity(&paths)).await
}

/// The volumes that have a loop device now, by its number.
pub(super) fn volumes_by_device(host: &LocalHost) -> io::Result<BTreeMap<u64, VolumeId>> {
    let mut files = BTreeMap::new();
    for id in pool::list_volumes(&host.paths.pool)? {
        if let Ok(file) = fs::metadata(host.paths.volume_file(&id)) {
            files.insert(FileIdentity::of(&file), id);
        }
    }
    let devices = loop_device::scan_devices()?.all.into_iter();
    Ok(devices.filter_map(|device| files.get(&device.file).map(|id| (device.number, id.clone()))).collect())
}

/// The name of the lock under which the device of a volume is looked for and made. It is not the one of the verbs, because
/// those wait for helpers, which may be busy with instances whose start needs the device.
fn device_lock_name(id: &VolumeId) -> String {
    format!("{id} device")
}
