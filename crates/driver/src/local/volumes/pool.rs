//! The pool: the directory of all volumes, possibly on a disk of its own.
//!
//! A disk that is not mounted leaves an empty directory, which must not be mistaken for a pool without volumes. So the
//! pool carries the id of its installation, and the data directory stores the location of the pool.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use tarn_model::ids::VolumeId;

use crate::Error;
use crate::local::host::files;
use crate::local::host::paths::InstallationPaths;

/// The file in the pool that carries the installation id.
pub(in crate::local) const OWNER_FILE: &str = "installation";

/// The file in the data directory that stores the location of the pool.
const LOCATION_FILE: &str = "volumes.pool";

/// The file in a restored data directory with the location of a pool that is still marked as that of another
/// installation. It shall be that of this one.
const TAKE_OVER_FILE: &str = "volumes.take-over";

/// The extension of a volume that is being created.
pub(super) const NEW: &str = "new";

/// The extension of a volume that is being removed.
pub(super) const REMOVED: &str = "removed";

/// Finds the pool or creates it, and locks out other engines while the returned file is open.
pub(in crate::local) fn open_pool(
    data: &Path,
    pool: &Path,
    installation: &str,
) -> io::Result<Result<(PathBuf, File), Error>> {
    let refused = |why: &str| Ok(Err(Error::Permanent(format!("the pool of the volumes at {} {why}", pool.display()))));
    let remembered = read_if_present(&data.join(LOCATION_FILE))?;
    if remembered.is_none()
        && let Err(error) = fs::create_dir_all(pool)
    {
        return refused(&format!("cannot be created: {error}"));
    }
    let recovery = format!("remove {} to give up its volumes", data.join(LOCATION_FILE).display());
    let lost = format!("is not the one of this installation: is its disk mounted? ({recovery})");
    let Ok(pool_lock) = File::open(pool) else { return refused(&lost) };
    match pool_lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let location = pool.display();
            return Ok(Err(Error::Retry(format!("the pool of the volumes at {location} is used by another engine"))));
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let pool = pool.canonicalize()?;
    match owner(&pool)? {
        Some(owner) if owner == installation.as_bytes() => {}
        _ if takes_over(data, &pool)? => take_over(data, &pool, installation)?,
        Some(_) => return refused("belongs to another installation: each needs a pool of its own"),
        None if remembered.is_some() => return refused(&lost),
        None if !list_volumes(&pool)?.is_empty() => {
            return refused("contains volumes of an unknown installation");
        }
        None => {
            files::ensure_directory(&pool, 0o700)?;
            files::write_durably(&pool.join(OWNER_FILE), installation.as_bytes(), 0o600)?;
        }
    }
    let location = pool.as_os_str().as_bytes();
    if remembered.as_deref() != Some(location) {
        files::write_durably(&data.join(LOCATION_FILE), location, 0o600)?;
    }
    Ok(Ok((pool, pool_lock)))
}

/// The id of the installation that a pool belongs to.
pub(in crate::local) fn owner(pool: &Path) -> io::Result<Option<Vec<u8>>> {
    read_if_present(&pool.join(OWNER_FILE))
}

/// Stores that this pool of another installation shall be that of a data directory.
pub(in crate::local) fn remember_take_over(data: &Path, pool: &Path) -> io::Result<()> {
    files::write_durably(&data.join(TAKE_OVER_FILE), pool.as_os_str().as_bytes(), 0o600)
}

/// Whether this pool shall be that of a data directory and is not yet.
pub(in crate::local) fn takes_over(data: &Path, pool: &Path) -> io::Result<bool> {
    Ok(read_if_present(&data.join(TAKE_OVER_FILE))?.as_deref() == Some(pool.as_os_str().as_bytes()))
}

/// Makes the pool that of a data directory, so that the former installation is refused.
pub(in crate::local) fn take_over(data: &Path, pool: &Path, installation: &str) -> io::Result<()> {
    files::write_durably(&pool.join(OWNER_FILE), installation.as_bytes(), 0o600)?;
    fs::remove_file(data.join(TAKE_OVER_FILE))?;
    tarn_base::files::sync_parent(&data.join(TAKE_OVER_FILE))
}

/// Removes what was half created or half removed when the engine died, and nothing else.
pub(in crate::local) fn sweep_pool(pool: &Path) -> io::Result<()> {
    unfinished_entries(pool)?.iter().try_for_each(|path| files::remove_tree(path))
}

/// The entries that are half created or half removed, by a running engine or by one that died.
pub(in crate::local) fn unfinished_entries(pool: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(pool)? {
        let path = entry?.path();
        let half = matches!(path.extension().and_then(OsStr::to_str), Some(NEW | REMOVED));
        if half && path.file_stem().and_then(parse_volume_id).is_some() {
            found.push(path);
        }
    }
    Ok(found)
}

/// All volumes that are in place.
pub(in crate::local) fn list_volumes(pool: &Path) -> io::Result<Vec<VolumeId>> {
    let mut volumes = Vec::new();
    for entry in fs::read_dir(pool)? {
        volumes.extend(parse_volume_id(&entry?.file_name()));
    }
    Ok(volumes)
}

/// The capacity of the pool: what is free, and what volumes already use.
pub(super) fn pool_capacity(paths: &InstallationPaths) -> io::Result<u64> {
    let used = measure_pool(paths)?;
    Ok(used.free_bytes.saturating_add(used.taken_bytes))
}

/// The usage of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::local) struct PoolUsage {
    /// The free bytes on its disk.
    pub(in crate::local) free_bytes: u64,
    /// The bytes that volumes use on disk.
    pub(in crate::local) taken_bytes: u64,
    /// The bytes that volumes may use together.
    pub(in crate::local) promised_bytes: u64,
}

/// Measures the usage of the pool.
pub(in crate::local) fn measure_pool(paths: &InstallationPaths) -> io::Result<PoolUsage> {
    let mut used = PoolUsage { free_bytes: free_bytes(&paths.pool)?, ..PoolUsage::default() };
    for id in list_volumes(&paths.pool)? {
        match fs::metadata(paths.volume_file(&id)) {
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

/// Returns whether the file of a volume does not exist, also because a stray file has the name of its directory.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The free bytes on the disk of the pool.
pub(super) fn free_bytes(pool: &Path) -> io::Result<u64> {
    let disk = statvfs(pool)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn parse_volume_id(name: &OsStr) -> Option<VolumeId> {
    name.to_str()?.parse().ok()
}

fn read_if_present(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
