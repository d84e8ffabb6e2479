//! The data directory: private to its owner, used by one process at a time, and the place of the administrator's key.

pub(crate) mod master_key;
pub(crate) mod ownership_mark;
pub(crate) mod reserve;

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_base::files;

use crate::failure::{Failure, Result};

/// The mode of the directory: it holds the database and keys.
const PRIVATE: u32 = 0o700;

/// Creates the directory unless it exists, and closes it to other users.
pub(crate) fn create_directory(data: &Path) -> Result<()> {
    let shown = data.display();
    let made = std::fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(data);
    made.map_err(|e| Failure::with_cause(format!("cannot create the data directory {shown}"), e))?;
    let failed = |e| Failure::with_cause(format!("cannot close the data directory {shown} to other users"), e);
    let mode = std::fs::metadata(data).map_err(failed)?.permissions().mode() & 0o7777;
    if mode != PRIVATE {
        std::fs::set_permissions(data, Permissions::from_mode(PRIVATE)).map_err(failed)?;
        tracing::warn!("the data directory {shown} had the mode {mode:04o}; it is closed to other users now");
    }
    Ok(())
}

/// The number of tries to lock the directory, and the pause between them.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Locks the directory for this process until the file is dropped or the process ends. A process that a killed
/// predecessor has just forked holds the lock until it executes another program, so a few tries are made.
pub(crate) async fn lock_directory(data: &Path) -> Result<File> {
    let path = data.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|e| Failure::with_cause(format!("cannot open {}", path.display()), e))?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
            Err(TryLockError::Error(e)) => {
                return Err(Failure::with_cause(format!("cannot lock {}", path.display()), e));
            }
        }
    }
    let data = data.display();
    Err(Failure(format!(
        "another engine is already running on {data}; stop it first, or give another directory with --data"
    )))
}

/// The path of the administrator's key.
pub(crate) fn admin_key_path(data: &Path) -> PathBuf {
    data.join("admin.key")
}

/// Writes the administrator's key to a temporary file, which [`publish_secret`] puts in place.
pub(crate) fn prepare_admin_key(data: &Path, api_key: &str) -> Result<PathBuf> {
    prepare_secret(&admin_key_path(data), api_key)
}

/// Writes a secret to a temporary file beside `place`, readable for its owner only.
pub(crate) fn prepare_secret(place: &Path, secret: &str) -> Result<PathBuf> {
    let mut name = place.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let path = PathBuf::from(name);
    let written = files::write_file(&path, secret.as_bytes(), 0o600);
    written.map_err(|e| Failure::with_cause(format!("cannot write {}", path.display()), e))?;
    Ok(path)
}

/// Renames a prepared file to its final name.
pub(crate) fn publish_secret(prepared: &Path, place: &Path) -> Result<()> {
    let published = files::publish_file(prepared, place);
    published.map_err(|e| Failure::with_cause(format!("cannot write {}", place.display()), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data directory is private, whatever it was before.
    #[test]
    fn data_directory_is_private() {
        let place = tempfile::tempdir().unwrap();
        for (name, before) in [("new", None), ("open", Some(0o755)), ("shared", Some(0o1777))] {
            let data = place.path().join(name);
            if let Some(mode) = before {
                std::fs::create_dir(&data).unwrap();
                std::fs::set_permissions(&data, Permissions::from_mode(mode)).unwrap();
            }
            create_directory(&data).unwrap();
            assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o7777, PRIVATE, "{name}");
        }
    }
}
