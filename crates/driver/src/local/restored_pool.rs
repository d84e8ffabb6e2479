//! The pool of an installation that is restored from a backup, before its first engine.
//!
//! The restored installation has a new id, because it must not take the instances and networks of the former one for
//! its own. The volumes in its pool are the only thing that it continues.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use tarn_model::ids::VolumeId;

use super::host::files;
use super::installation;
use super::volumes::{self, OWNER_FILE};
use crate::Error;

/// The name of the file of a volume while it is filled.
const UNFINISHED: &str = "data.restoring";

/// The file of a volume in a pool.
pub fn volume_file(pool: &Path, id: &VolumeId) -> PathBuf {
    pool.join(id.as_str()).join("data.xfs")
}

/// Fills the file of a volume, which gets its name only when it is complete and on disk: a restore that is interrupted
/// leaves nothing that looks like the data of a volume.
pub fn fill_volume(pool: &Path, id: &VolumeId, fill: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let (directory, unfinished) = (pool.join(id.as_str()), pool.join(id.as_str()).join(UNFINISHED));
    files::ensure_directory(&directory, 0o700)?;
    // An interrupted restore may have left it.
    fs::remove_file(&unfinished).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
    fill(&unfinished).inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
    tarn_base::files::publish_file(&unfinished, &volume_file(pool, id))?;
    File::open(pool)?.sync_all()
}

/// Returns the volumes that have a file in a pool.
pub fn volumes_in(pool: &Path) -> io::Result<Vec<VolumeId>> {
    let all = match volumes::list_volumes(pool) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    };
    Ok(all.into_iter().filter(|id| volume_file(pool, id).is_file()).collect())
}

/// Gives a data directory the id of a new installation, which becomes the owner of a pool. A pool that an engine uses
/// is refused.
pub fn take_over_pool(data: &Path, pool: &Path) -> io::Result<Result<(), Error>> {
    fs::create_dir_all(pool)?;
    files::ensure_directory(pool, 0o700)?;
    let lock = File::open(pool)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let shown = pool.display();
            return Ok(Err(Error::Permanent(format!("the pool of the volumes at {shown} is used by another engine"))));
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let id = installation::ensure_id(data)?;
    files::write_durably(&pool.join(OWNER_FILE), id.as_bytes(), 0o600)?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool gets the id of the new installation, but not while an engine uses it.
    #[test]
    fn pool_changes_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let (data, pool) = (place.path().join("data"), place.path().join("pool"));
        fs::create_dir(&data).unwrap();
        fs::create_dir(&pool).unwrap();
        let id: VolumeId = "s-000000000001".parse().unwrap();
        fs::create_dir(pool.join(id.as_str())).unwrap();
        assert!(volumes_in(&pool).unwrap().is_empty(), "a directory alone is no volume");
        fs::write(volume_file(&pool, &id), "").unwrap();
        fs::write(pool.join(OWNER_FILE), "former").unwrap();
        let used = File::open(&pool).unwrap();
        used.lock().unwrap();
        assert!(take_over_pool(&data, &pool).unwrap().is_err());
        drop(used);
        take_over_pool(&data, &pool).unwrap().unwrap();
        let owner = fs::read_to_string(pool.join(OWNER_FILE)).unwrap();
        assert_eq!(installation::existing_id(&data).unwrap(), Some(owner));
        assert_eq!(volumes_in(&pool).unwrap(), [id]);
    }

    /// A volume whose restore was interrupted, or failed, is not taken for one with its data.
    #[test]
    fn volume_is_there_when_it_is_complete() {
        let place = tempfile::tempdir().unwrap();
        let (pool, id) = (place.path(), "s-000000000001".parse::<VolumeId>().unwrap());
        let full = fill_volume(pool, &id, |path| {
            fs::write(path, "hal")?;
            assert!(volumes_in(pool)?.is_empty(), "it is being filled");
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_dir(pool.join(id.as_str())).unwrap().count(), 0);
        fs::write(pool.join(id.as_str()).join(UNFINISHED), "what a killed restore left").unwrap();
        assert!(volumes_in(pool).unwrap().is_empty());
        fill_volume(pool, &id, |path| fs::write(path, "whole")).unwrap();
        assert_eq!(volumes_in(pool).unwrap(), std::slice::from_ref(&id));
        assert_eq!(fs::read_to_string(volume_file(pool, &id)).unwrap(), "whole");
    }
}
