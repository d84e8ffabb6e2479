//! Volumes: files in a pool, each with a filesystem of its own.
//!
//! A volume is in place or it is not: it is created and removed under a temporary name. A volume in place was formatted
//! once and its label carries its id; anything else has a fault and is left alone. A loop device presents the file to
//! the kernel while the volume is in use. Mounting is not done here, and no volume appears among the mounts of the
//! host.
//!
//! Start reading at `ensure`, then `open` and `inspection`.

mod create;
mod grow;
mod inspection;
mod open;
mod pool;
mod remove;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::mount::{FsOpenFlags, fsopen};
use tarn_model::ids::VolumeId;

pub(super) use create::{mkfs_error, run_mkfs};
pub(super) use grow::ensure_volume;
pub(super) use inspection::{observe_pool, observe_volume, observe_volumes, report_damage, report_unreadable};
pub(super) use open::open_volume;
pub(super) use pool::{
    OWNER_FILE, PoolUsage, list_volumes, measure_pool, open_pool, owner, remember_take_over, sweep_pool, take_over,
    takes_over, unfinished_entries,
};
pub(super) use remove::remove_volume;

use crate::Error;
use crate::local::host::loop_device::{self, FileIdentity};
use crate::local::host::paths::InstallationPaths;
use crate::local::local_host::{LocalHost, blocking};

/// The state that all operations on volumes share.
pub(super) struct Volumes {
    /// The path of `mkfs.xfs`, or what the host lacks.
    mkfs: Result<PathBuf, String>,
    /// The directory of the pool, locked while this engine uses it.
    pool_lock: File,
}

impl Volumes {
    /// Looks for what volumes need. A host that lacks it can still have instances.
    pub(super) fn new(pool_lock: File) -> Self {
        let mkfs = find_mkfs();
        if let Err(why) = &mkfs {
            tracing::warn!("{why}");
        }
        Volumes { mkfs, pool_lock }
    }

    /// Returns whether this host supports volumes.
    pub(super) fn supported(&self) -> bool {
        self.mkfs.is_ok()
    }

    /// The path of `mkfs.xfs`, on a host that supports volumes.
    pub(super) fn mkfs(&self) -> Result<PathBuf, Error> {
        self.mkfs.clone().map_err(Error::Unsupported)
    }

    /// Refuses to continue when another directory lies where the pool was: its volumes would seem to be gone.
    fn check_pool_present(&self, paths: &InstallationPaths) -> Result<(), Error> {
        let same = || {
            Ok::<_, io::Error>(
                FileIdentity::of(&self.pool_lock.metadata()?) == FileIdentity::of(&fs::metadata(&paths.pool)?),
            )
        };
        if same().unwrap_or(false) {
            return Ok(());
        }
        tracing::warn!(pool = %paths.pool.display(), "the pool is missing: is its disk mounted?");
        Err(Error::Retry("the disk of the volumes is missing; ask the operator to restore it".into()))
    }
}

/// How many bytes all volumes may have together.
pub(super) async fn volume_capacity(host: &LocalHost) -> Result<u64, Error> {
    host.volumes.check_pool_present(&host.paths)?;
    let paths = host.paths.clone();
    blocking("the capacity for volumes could not be measured", move || pool::pool_capacity(&paths)).await
}

/// The volumes that have a loop device now, by device number.
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

/// The name of the lock under which the device of a volume is found or attached. It differs from the lock of the
/// operations, because those wait for helpers, which may be busy with instances whose start needs the device.
fn device_lock_name(id: &VolumeId) -> String {
    format!("{id} device")
}

/// Where administrative programs are; the search path of a service often lacks some of them.
const DIRECTORIES: [&str; 6] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];

/// Looks for `mkfs.xfs`, and for a kernel with XFS and loop devices. The error names what is missing, for the operator
/// and for the owner of a volume alike.
fn find_mkfs() -> Result<PathBuf, String> {
    let missing = |what: &str| format!("this host does not support volumes: {what}");
    let Some(mkfs) = find_program("mkfs.xfs") else {
        return Err(missing("the program mkfs.xfs is missing (install the package xfsprogs)"));
    };
    // Both checks make the kernel load the module if it has one.
    if let Err(error) = fsopen("xfs", FsOpenFlags::FSOPEN_CLOEXEC) {
        tracing::debug!(%error, "the kernel cannot open XFS");
        return Err(missing("its kernel lacks the filesystem XFS (is the module xfs available?)"));
    }
    if let Err(error) = File::open("/dev/loop-control") {
        tracing::debug!(%error, "/dev/loop-control cannot be opened");
        return Err(missing("its kernel has no loop devices (is the module loop available?)"));
    }
    Ok(mkfs)
}

/// Finds a program in the usual directories.
fn find_program(name: &str) -> Option<PathBuf> {
    DIRECTORIES
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| is_executable(path).unwrap_or(false))
}

fn is_executable(path: &Path) -> io::Result<bool> {
    let found = fs::metadata(path)?;
    Ok(found.is_file() && found.permissions().mode() & 0o111 != 0)
}
