//! The pool: the directory of all volumes, perhaps on a disk of its own.
//!
//! A disk that is not mounted leaves an empty directory, which must not be taken for a pool without volumes. So the pool
//! carries the id of its installation, and the data directory remembers that there is a pool and where.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use tarn_model::ids::VolumeId;

use crate::Error;
use crate::local::places::Places;
use crate::local::{files, trees};

/// The file in the pool that carries the installation's id.
const OWNER: &str = "installation";

/// The file in the data directory that remembers where the pool is.
const MEMORY: &str = "volumes.pool";

/// What the name of a volume ends with that is being made.
pub(super) const NEW: &str = "new";

/// What the name of a volume ends with that is being removed.
pub(super) const REMOVED: &str = "removed";

/// Finds the pool or makes it, and keeps other engines out for as long as the file lives that is given back.
pub(in crate::local) fn open(
    data: &Path,
    pool: &Path,
    installation: &str,
) -> io::Result<Result<(PathBuf, File), Error>> {
    let refused = |why: &str| Ok(Err(Error::Permanent(format!("the pool of the volumes at {} {why}", pool.display()))));
    let remembered = read(&data.join(MEMORY))?;
    if remembered.is_none()
        && let Err(error) = fs::create_dir_all(pool)
    {
        return refused(&format!("cannot be made: {error}"));
    }
    let given_up = format!("remove {} if the volumes are given up for good", data.join(MEMORY).display());
    let lost = format!("is not the one that was made for this installation: is its disk mounted? ({given_up})");
    let Ok(alone) = File::open(pool) else { return refused(&lost) };
    match alone.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let place = pool.display();
            return Ok(Err(Error::Retry(format!("the pool of the volumes at {place} is used by another engine"))));
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let pool = pool.canonicalize()?;
    match read(&pool.join(OWNER))? {
        Some(owner) if owner == installation.as_bytes() => {}
        Some(_) => return refused("belongs to another installation: each needs a pool of its own"),
        None if remembered.is_some() => return refused(&lost),
        None if !volumes(&pool)?.is_empty() => return refused("holds volumes of an installation that is not known"),
        None => {
            files::ensure_directory(&pool, 0o700)?;
            files::write_durably(&pool.join(OWNER), installation.as_bytes(), 0o600)?;
        }
    }
    let place = pool.as_os_str().as_bytes();
    if remembered.as_deref() != Some(place) {
        files::write_durably(&data.join(MEMORY), place, 0o600)?;
    }
    Ok(Ok((pool, alone)))
}

/// Removes what was half made or half removed when the engine died, and nothing else.
pub(in crate::local) fn sweep(pool: &Path) -> io::Result<()> {
    half_made(pool)?.iter().try_for_each(|path| trees::remove(path))
}

/// What is half made or half removed: by an engine that is at it, or by one that died over it.
pub(in crate::local) fn half_made(pool: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(pool)? {
        let path = entry?.path();
        let half = matches!(path.extension().and_then(OsStr::to_str), Some(NEW | REMOVED));
        if half && path.file_stem().and_then(volume).is_some() {
            found.push(path);
        }
    }
    Ok(found)
}

/// All volumes that are in place.
pub(super) fn volumes(pool: &Path) -> io::Result<Vec<VolumeId>> {
    let mut volumes = Vec::new();
    for entry in fs::read_dir(pool)? {
        volumes.extend(volume(&entry?.file_name()));
    }
    Ok(volumes)
}

/// What is free for volumes, and what they have taken already.
pub(super) fn capacity(places: &Places) -> io::Result<u64> {
    let used = used(places)?;
    Ok(used.free_bytes.saturating_add(used.taken_bytes))
}

/// The pool in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::local) struct Used {
    /// What is free on its disk.
    pub(in crate::local) free_bytes: u64,
    /// What the volumes have taken of it.
    pub(in crate::local) taken_bytes: u64,
    /// What they may have together.
    pub(in crate::local) promised_bytes: u64,
}

/// Counts it.
pub(in crate::local) fn used(places: &Places) -> io::Result<Used> {
    let mut used = Used { free_bytes: free(&places.pool)?, ..Used::default() };
    for id in volumes(&places.pool)? {
        match fs::metadata(places.volume_file(&id)) {
            Ok(file) => {
                used.taken_bytes = used.taken_bytes.saturating_add(file.blocks().saturating_mul(512));
                used.promised_bytes = used.promised_bytes.saturating_add(file.len());
            }
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(used)
}

/// Whether the file of a volume is not there, be it because a stray file has the name of its directory.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// What is free on the disk of the pool.
pub(super) fn free(pool: &Path) -> io::Result<u64> {
    let disk = statvfs(pool)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn volume(name: &OsStr) -> Option<VolumeId> {
    name.to_str()?.parse().ok()
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
