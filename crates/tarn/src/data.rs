//! The data directory: made for its owner only, used by one process at a time, and holding the administrator's key.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{Failure, Result};

/// Makes the directory if need be.
pub(crate) fn make(data: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.map_err(|e| Failure::doing(format!("cannot make the data directory {}", data.display()), e))
}

/// How often, with a pause each time, the directory is tried to be taken.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// Takes the directory for this process; it is free again when the file is dropped, however the process ends. A process that
/// a killed predecessor was just starting has it, too, until it has become another program: that is waited for.
pub(crate) async fn lock(data: &Path) -> Result<File> {
    let path = data.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|e| Failure::doing(format!("cannot open {}", path.display()), e))?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(PAUSE).await,
            Err(TryLockError::Error(e)) => return Err(Failure::doing(format!("cannot lock {}", path.display()), e)),
        }
    }
    let data = data.display();
    Err(Failure(format!("another tarn is already running on {data}; stop it first, or give another --data directory")))
}

/// Where the administrator's key is.
pub(crate) fn key_path(data: &Path) -> PathBuf {
    data.join("admin.key")
}

/// Writes the administrator's key, and nothing else. It has its place when it is published.
pub(crate) fn prepare_key(data: &Path, api_key: &str) -> Result<PathBuf> {
    prepare(&key_path(data), api_key)
}

/// Writes a secret beside its place, for its owner's eyes only.
pub(crate) fn prepare(place: &Path, secret: &str) -> Result<PathBuf> {
    let mut name = place.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let path = PathBuf::from(name);
    let written = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(secret.as_bytes())?;
        file.sync_all()
    };
    written().map_err(|e| Failure::doing(format!("cannot write {}", path.display()), e))?;
    Ok(path)
}

/// Puts a secret that was written into its place.
pub(crate) fn publish(prepared: &Path, place: &Path) -> Result<()> {
    let published = || -> std::io::Result<()> {
        std::fs::rename(prepared, place)?;
        let directory = place.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    };
    published().map_err(|e| Failure::doing(format!("cannot write {}", place.display()), e))
}
