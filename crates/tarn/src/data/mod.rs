//! The data directory: private to its owner, used by one process at a time, and the place of the administrator's key.

pub(crate) mod master_key;
pub(crate) mod ownership_mark;

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_base::files;

use crate::failure::{Failure, Result};

/// Creates the directory unless it exists.
pub(crate) fn create_directory(data: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.map_err(|e| Failure::with_cause(format!("cannot create the data directory {}", data.display()), e))
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
