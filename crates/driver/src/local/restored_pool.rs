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

/// A pool that is to be that of a new installation. No engine can use it while this value lives.
#[derive(Debug)]
pub struct ClaimedPool {
    pool: PathBuf,
    installation: String,
    _lock: File,
}

/// Gives a data directory the id of a new installation, and claims a pool for it. A free pool becomes its own at once.
/// One of another installation is refused, unless it is to be taken over; it stays that of the other one until
/// [`ClaimedPool::publish`], or until the first engine of the new one opens it. A pool that an engine uses is refused.
pub fn claim_pool(data: &Path, pool: &Path, takes_over: bool) -> io::Result<Result<ClaimedPool, Error>> {
    fs::create_dir_all(pool)?;
    let shown = pool.display();
    let Some(lock) = lock_pool(pool)? else {
        return Ok(Err(Error::Permanent(format!("the pool of the volumes at {shown} is used by another engine"))));
    };
    let pool = pool.canonicalize()?;
    let owner = volumes::owner(&pool)?;
    let is_free = owner.is_none() && volumes::list_volumes(&pool)?.is_empty();
    let installation = installation::ensure_id(data)?;
    if is_free {
        files::ensure_directory(&pool, 0o700)?;
        files::write_durably(&pool.join(OWNER_FILE), installation.as_bytes(), 0o600)?;
    } else if owner.as_deref() != Some(installation.as_bytes()) {
        if !takes_over {
            return Ok(Err(Error::Permanent(format!(
                "the pool of the volumes at {shown} belongs to another installation"
            ))));
        }
        volumes::remember_take_over(data, &pool)?;
    }
    Ok(Ok(ClaimedPool { pool, installation, _lock: lock }))
}

impl ClaimedPool {
    /// Makes the pool that of the new installation, whose data directory has its final name now.
    pub fn publish(self, data: &Path) -> io::Result<()> {
        if volumes::takes_over(data, &self.pool)? {
            volumes::take_over(data, &self.pool, &self.installation)?;
        }
        Ok(())
    }
}

/// Frees a pool that was free before it was claimed for this data directory, whose restore was given up, and removes
/// what was restored into it. Another pool stays as it is.
pub fn abandon_pool(data: &Path, pool: &Path) -> io::Result<()> {
    let Some(installation) = installation::existing_id(data)? else { return Ok(()) };
    match volumes::owner(pool) {
        Ok(Some(owner)) if owner == installation.as_bytes() => {}
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let Some(_lock) = lock_pool(pool)? else {
        return Err(io::Error::other(format!("the pool of the volumes at {} is used by an engine", pool.display())));
    };
    for id in volumes::list_volumes(pool)? {
        files::remove_tree(&pool.join(id.as_str()))?;
    }
    fs::remove_file(pool.join(OWNER_FILE))
}

/// Locks a pool as an engine does; `None` while another process has the lock.
fn lock_pool(pool: &Path) -> io::Result<Option<File>> {
    let lock = File::open(pool)?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume_in(pool: &Path) -> VolumeId {
        let id: VolumeId = "s-000000000001".parse().unwrap();
        fs::create_dir(pool.join(id.as_str())).unwrap();
        assert!(volumes_in(pool).unwrap().is_empty(), "a directory alone is no volume");
        fs::write(volume_file(pool, &id), "").unwrap();
        id
    }

    fn directories(names: [&str; 3]) -> (tempfile::TempDir, [PathBuf; 3]) {
        let place = tempfile::tempdir().unwrap();
        let all = names.map(|name| place.path().join(name));
        all.iter().for_each(|directory| fs::create_dir(directory).unwrap());
        (place, all)
    }

    /// A pool becomes that of the new installation when its data directory has its name, and not while an engine uses
    /// it. Until then the former installation can use it.
    #[test]
    fn pool_changes_its_owner() {
        let (_place, [former, data, pool]) = directories(["former", "data", "pool"]);
        let former_id = installation::ensure_id(&former).unwrap();
        drop(volumes::open_pool(&former, &pool, &former_id).unwrap().unwrap());
        let id = volume_in(&pool);
        let used = File::open(&pool).unwrap();
        used.lock().unwrap();
        assert!(claim_pool(&data, &pool, true).unwrap().is_err());
        drop(used);
        assert!(claim_pool(&data, &pool, false).unwrap().is_err());
        let claimed = claim_pool(&data, &pool, true).unwrap().unwrap();
        assert!(volumes::open_pool(&former, &pool, &former_id).unwrap().is_err(), "it is locked");
        drop(claimed);
        drop(volumes::open_pool(&former, &pool, &former_id).unwrap().unwrap());
        abandon_pool(&data, &pool).unwrap();
        assert_eq!(volumes_in(&pool).unwrap(), std::slice::from_ref(&id), "the volumes of the former one stay");
        claim_pool(&data, &pool, true).unwrap().unwrap().publish(&data).unwrap();
        let own_id = installation::existing_id(&data).unwrap().unwrap();
        assert!(volumes::open_pool(&former, &pool, &former_id).unwrap().is_err());
        drop(volumes::open_pool(&data, &pool, &own_id).unwrap().unwrap());
        assert_eq!(volumes_in(&pool).unwrap(), [id]);
    }

    /// After a kill between the name of the data directory and the mark of the pool, the first engine of either
    /// installation has the pool, and that of the former one is refused after the new one had it.
    #[test]
    fn first_engine_completes_a_take_over() {
        let (_place, [former, data, pool]) = directories(["former", "data", "pool"]);
        let former_id = installation::ensure_id(&former).unwrap();
        drop(volumes::open_pool(&former, &pool, &former_id).unwrap().unwrap());
        volume_in(&pool);
        drop(claim_pool(&data, &pool, true).unwrap().unwrap());
        drop(volumes::open_pool(&former, &pool, &former_id).unwrap().unwrap());
        let own_id = installation::existing_id(&data).unwrap().unwrap();
        for _start in 0..2 {
            drop(volumes::open_pool(&data, &pool, &own_id).unwrap().unwrap());
            assert!(volumes::open_pool(&former, &pool, &former_id).unwrap().is_err());
        }
        assert!(!volumes::takes_over(&data, &pool).unwrap(), "once");
    }

    /// A pool that was free is free again when the restore is given up.
    #[test]
    fn abandoned_pool_is_free() {
        let (_place, [data, again, pool]) = directories(["data", "again", "pool"]);
        drop(claim_pool(&data, &pool, false).unwrap().unwrap());
        volume_in(&pool);
        assert!(claim_pool(&again, &pool, false).unwrap().is_err());
        abandon_pool(&again, &pool).unwrap();
        assert_eq!(volumes_in(&pool).unwrap().len(), 1, "it is not that of this directory");
        abandon_pool(&data, &pool).unwrap();
        assert_eq!(fs::read_dir(&pool).unwrap().count(), 0);
        claim_pool(&again, &pool, false).unwrap().unwrap();
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
