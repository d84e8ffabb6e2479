//! What there is of volumes: their files, what is in them, and what the kernel says of those that are mounted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use tarn_model::ids::VolumeId;

use super::device::{self, Device, Devices, Identity};
use super::faults::{self, Fault};
use super::probe::{Live, probe};
use super::superblock::Superblock;
use super::{grow, pool};
use crate::local::filesystems::{is_damage, is_failure};
use crate::local::local_host::{LocalHost, blocking};
use crate::local::places::Places;
use crate::{Error, ObservedVolume};

const FAILED: &str = "a volume could not be looked at";

/// A volume as its file shows it.
pub(super) enum Volume {
    /// There is none.
    Absent,
    /// It has a fault.
    Faulty { size_bytes: u64, fault: Fault },
    /// It is as it should be.
    Sound { file: Identity, size_bytes: u64, superblock: Superblock },
}

/// Looks at one volume.
pub(in crate::local) async fn one(host: &LocalHost, id: &VolumeId) -> Result<Option<ObservedVolume>, Error> {
    host.volumes.check(&host.places)?;
    let (places, id) = (host.places.clone(), id.clone());
    blocking(FAILED, move || observe(&places, &id, &device::scan()?)).await
}

/// Looks at all volumes.
pub(in crate::local) async fn all(host: &LocalHost) -> Result<BTreeMap<VolumeId, ObservedVolume>, Error> {
    host.volumes.check(&host.places)?;
    let places = host.places.clone();
    blocking(FAILED, move || in_pool(&places)).await
}

/// The same for who has no engine, only its places.
pub(in crate::local) fn in_pool(places: &Places) -> io::Result<BTreeMap<VolumeId, ObservedVolume>> {
    let devices = device::scan()?;
    let mut volumes = BTreeMap::new();
    for id in pool::volumes(&places.pool)? {
        if let Some(seen) = observe(places, &id, &devices)? {
            volumes.insert(id, seen);
        }
    }
    Ok(volumes)
}

fn observe(places: &Places, id: &VolumeId, devices: &Devices) -> io::Result<Option<ObservedVolume>> {
    let faulty = |size_bytes, fault: Fault| {
        Ok(Some(ObservedVolume { size_bytes, used_bytes: None, fault: Some(fault.words(id)) }))
    };
    match inspect(places, id)? {
        Volume::Absent => Ok(None),
        Volume::Faulty { size_bytes, fault } => faulty(size_bytes, fault),
        Volume::Sound { size_bytes, file, .. } if devices.has_former(&places.volume_file(id), Some(file)) => {
            faulty(size_bytes, Fault::Replaced)
        }
        Volume::Sound { file, size_bytes, superblock } => match live(devices.of(file)) {
            Ok(live) => {
                let used_bytes = live.map_or(superblock.used_bytes, |live| live.used_bytes);
                // A file that was made longer is no larger volume before its filesystem has followed.
                let behind = superblock.behind(size_bytes, live);
                let size_bytes = if behind < grow::TAIL { size_bytes } else { size_bytes - behind };
                Ok(Some(ObservedVolume { size_bytes, used_bytes: Some(used_bytes), fault: None }))
            }
            Err(fault) => faulty(size_bytes, fault),
        },
    }
}

/// What the kernel says of a volume that is mounted somewhere.
pub(super) fn live(device: Option<&Device>) -> Result<Option<Live>, Fault> {
    match device.map_or(Ok(None), probe) {
        Ok(live) => Ok(live),
        Err(error) if is_damage(&error) || is_failure(&error) => Err(Fault::GivenUp),
        // Whoever mounts or unmounts it right now may be in the way; the file says almost the same.
        Err(error) => {
            tracing::debug!(%error, "the kernel was asked for a mounted volume in vain");
            Ok(None)
        }
    }
}

/// Looks at the file of a volume.
pub(super) fn inspect(places: &Places, id: &VolumeId) -> io::Result<Volume> {
    let directory = places.volume(id);
    if is_absent(&directory)? {
        return Ok(Volume::Absent);
    }
    let file = match File::open(places.volume_file(id)) {
        // One that was moved aside meanwhile, to be removed, has no fault. A file of a volume's name must not hide the others.
        Err(error) if pool::is_missing(&error) => {
            let missing = Volume::Faulty { size_bytes: 0, fault: Fault::Missing };
            return Ok(if is_absent(&directory)? { Volume::Absent } else { missing });
        }
        file => file?,
    };
    let found = file.metadata()?;
    let size_bytes = found.len();
    let faulty = |fault| Ok(Volume::Faulty { size_bytes, fault });
    if !found.is_file() {
        return faulty(Fault::Foreign);
    }
    if directory.join(faults::FILE).exists() {
        return faulty(Fault::Damaged);
    }
    match Superblock::read(&file) {
        Ok(Some(superblock)) if superblock.label != label(id) => faulty(Fault::Foreign),
        Ok(Some(superblock)) if superblock.size_bytes > size_bytes => faulty(Fault::Short),
        Ok(Some(superblock)) => Ok(Volume::Sound { file: Identity::of(&found), size_bytes, superblock }),
        Ok(None) => faulty(Fault::Foreign),
        Err(error) if is_failure(&error) => faulty(Fault::Unreadable),
        Err(error) => Err(error),
    }
}

/// The label that a filesystem has that is the volume's: as much of the id as there is room for, which is all that differs.
pub(super) fn label(id: &VolumeId) -> &str {
    id.as_str().strip_prefix(VolumeId::PREFIX).unwrap_or(id.as_str())
}

fn is_absent(directory: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(directory) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_has_the_name_of_a_volume_hides_no_other() {
        let pool = tempfile::tempdir().unwrap();
        let at = |name: &str| pool.path().join(name);
        fs::write(at("s-000000000000"), "a file").unwrap();
        fs::create_dir(at("s-000000000001")).unwrap();
        fs::create_dir_all(at("s-000000000002/data.xfs")).unwrap();
        fs::write(at("notes.txt"), "").unwrap();
        let (installation, run) = ("zzzzzz".to_owned(), at("run"));
        let places = Places { installation, data: at("data"), pool: pool.path().to_owned(), run };
        let seen = in_pool(&places).unwrap();
        let faults: Vec<_> = seen.values().map(|volume| volume.fault.as_deref().unwrap_or_default()).collect();
        let [file, empty, directory] = faults[..] else { panic!("{seen:?}") };
        assert!(file.contains("s-000000000000") && file.contains("is missing"), "{file}");
        assert!(empty.contains("is missing") && directory.contains("does not hold its filesystem"), "{seen:?}");
        assert!(pool::used(&places).is_ok());
    }
}
