//! Inspects volumes: their files, the content of the files, and what the kernel reports for mounted ones.
//!
//! Start reading at `inspect_file`.

mod faults;
mod superblock;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::fstatvfs;
use tarn_model::ids::VolumeId;

pub(super) use faults::Fault;
pub(in crate::local) use faults::{report_damage, report_unreadable};

use super::{grow, pool};
use crate::local::host::loop_device::{self, FileIdentity, LoopDevice, LoopDevices};
use crate::local::host::paths::InstallationPaths;
use crate::local::host::xfs::{self, is_damage, is_io_failure};
use crate::local::local_host::{LocalHost, blocking};
use crate::{Error, ObservedVolume};
use superblock::Superblock;

const FAILED: &str = "the volume could not be inspected";

/// The state of a volume according to its file.
pub(super) enum VolumeState {
    Absent,
    Faulty { size_bytes: u64, fault: Fault },
    Sound { file: FileIdentity, size_bytes: u64, superblock: Superblock },
}

/// Observes one volume.
pub(in crate::local) async fn observe_volume(host: &LocalHost, id: &VolumeId) -> Result<Option<ObservedVolume>, Error> {
    host.volumes.check_pool_present(&host.paths)?;
    let (paths, id) = (host.paths.clone(), id.clone());
    blocking(FAILED, move || observe_file(&paths, &id, &loop_device::scan_devices()?)).await
}

/// Observes all volumes.
pub(in crate::local) async fn observe_volumes(host: &LocalHost) -> Result<BTreeMap<VolumeId, ObservedVolume>, Error> {
    host.volumes.check_pool_present(&host.paths)?;
    let paths = host.paths.clone();
    blocking(FAILED, move || observe_pool(&paths)).await
}

/// Observes all volumes without an open driver.
pub(in crate::local) fn observe_pool(paths: &InstallationPaths) -> io::Result<BTreeMap<VolumeId, ObservedVolume>> {
    let devices = loop_device::scan_devices()?;
    let mut volumes = BTreeMap::new();
    for id in pool::list_volumes(&paths.pool)? {
        if let Some(seen) = observe_file(paths, &id, &devices)? {
            volumes.insert(id, seen);
        }
    }
    Ok(volumes)
}

fn observe_file(paths: &InstallationPaths, id: &VolumeId, devices: &LoopDevices) -> io::Result<Option<ObservedVolume>> {
    let faulty = |size_bytes, fault: Fault| {
        Ok(Some(ObservedVolume { size_bytes, used_bytes: None, fault: Some(fault.describe(id)) }))
    };
    match inspect_file(paths, id)? {
        VolumeState::Absent => Ok(None),
        VolumeState::Faulty { size_bytes, fault } => faulty(size_bytes, fault),
        VolumeState::Sound { size_bytes, file, .. }
            if devices.has_replaced_file(&paths.volume_file(id), Some(file)) =>
        {
            faulty(size_bytes, Fault::Replaced)
        }
        VolumeState::Sound { file, size_bytes, superblock } => match probe_live(devices.find(file)) {
            Ok(live) => {
                let used_bytes = live.map_or(superblock.used_bytes, |live| live.used_bytes);
                // A longer file does not make a larger volume before its filesystem has grown.
                let behind = superblock.unused_tail_bytes(size_bytes, live);
                let size_bytes = if behind < grow::MAX_UNUSED_TAIL { size_bytes } else { size_bytes - behind };
                Ok(Some(ObservedVolume { size_bytes, used_bytes: Some(used_bytes), fault: None }))
            }
            Err(fault) => faulty(size_bytes, fault),
        },
    }
}

/// What the kernel reports for a volume that is mounted somewhere.
pub(super) fn probe_live(device: Option<&LoopDevice>) -> Result<Option<LiveUsage>, Fault> {
    match device.map_or(Ok(None), probe_mounted) {
        Ok(live) => Ok(live),
        Err(error) if is_damage(&error) || is_io_failure(&error) => Err(Fault::ShutDown),
        // A concurrent mount or unmount may interfere; the file says almost the same.
        Err(error) => {
            tracing::debug!(%error, "the kernel could not be asked for a mounted volume");
            Ok(None)
        }
    }
}

/// Inspects the file of a volume.
pub(super) fn inspect_file(paths: &InstallationPaths, id: &VolumeId) -> io::Result<VolumeState> {
    let directory = paths.volume_directory(id);
    if is_directory_absent(&directory)? {
        return Ok(VolumeState::Absent);
    }
    let file = match File::open(paths.volume_file(id)) {
        // A volume that was moved aside meanwhile, to be removed, has no fault. A stray file with the name of a volume
        // must not hide the others.
        Err(error) if pool::is_missing(&error) => {
            let missing = VolumeState::Faulty { size_bytes: 0, fault: Fault::Missing };
            return Ok(if is_directory_absent(&directory)? { VolumeState::Absent } else { missing });
        }
        file => file?,
    };
    let found = file.metadata()?;
    let size_bytes = found.len();
    let faulty = |fault| Ok(VolumeState::Faulty { size_bytes, fault });
    if !found.is_file() {
        return faulty(Fault::Foreign);
    }
    if directory.join(faults::FILE).exists() {
        return faulty(Fault::Damaged);
    }
    match Superblock::read(&file) {
        Ok(Some(superblock)) if superblock.label != filesystem_label(id) => faulty(Fault::Foreign),
        Ok(Some(superblock)) if superblock.size_bytes > size_bytes => faulty(Fault::Short),
        Ok(Some(superblock)) => Ok(VolumeState::Sound { file: FileIdentity::of(&found), size_bytes, superblock }),
        Ok(None) => faulty(Fault::Foreign),
        Err(error) if is_io_failure(&error) => faulty(Fault::Unreadable),
        Err(error) => Err(error),
    }
}

/// The label of the volume's filesystem: as much of the id as fits, which is the part that differs.
pub(super) fn filesystem_label(id: &VolumeId) -> &str {
    id.as_str().strip_prefix(VolumeId::PREFIX).unwrap_or(id.as_str())
}

fn is_directory_absent(directory: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(directory) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// What the kernel reports for a mounted filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::local::volumes) struct LiveUsage {
    /// The size without the journal.
    pub(in crate::local::volumes) size_bytes: u64,
    pub(in crate::local::volumes) used_bytes: u64,
}

/// Asks the kernel; `None` when the device is not mounted. Damage is an error.
pub(in crate::local::volumes) fn probe_mounted(device: &LoopDevice) -> io::Result<Option<LiveUsage>> {
    if !Path::new("/sys/fs/xfs").join(device.name()).exists() {
        return Ok(None);
    }
    let counted = fstatvfs(xfs::mount_detached(&device.path)?)?;
    let bytes = |blocks: u64| blocks.saturating_mul(counted.f_frsize);
    let used = counted.f_blocks.saturating_sub(counted.f_bfree);
    Ok(Some(LiveUsage { size_bytes: bytes(counted.f_blocks), used_bytes: bytes(used) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stray entry with the name of a volume does not hide the others.
    #[test]
    fn stray_entries_hide_no_volume() {
        let pool = tempfile::tempdir().unwrap();
        let at = |name: &str| pool.path().join(name);
        fs::write(at("s-000000000000"), "a file").unwrap();
        fs::create_dir(at("s-000000000001")).unwrap();
        fs::create_dir_all(at("s-000000000002/data.xfs")).unwrap();
        fs::write(at("notes.txt"), "").unwrap();
        let (installation, run) = ("zzzzzz".to_owned(), at("run"));
        let paths = InstallationPaths { installation, data: at("data"), pool: pool.path().to_owned(), run };
        let seen = observe_pool(&paths).unwrap();
        let faults: Vec<_> = seen.values().map(|volume| volume.fault.as_deref().unwrap_or_default()).collect();
        let [file, empty, directory] = faults[..] else { panic!("{seen:?}") };
        assert!(file.contains("s-000000000000") && file.contains("is missing"), "{file}");
        assert!(empty.contains("is missing") && directory.contains("no longer contains its filesystem"), "{seen:?}");
        assert!(pool::measure_pool(&paths).is_ok());
    }
}
