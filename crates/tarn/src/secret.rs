//! The master key: a file of 32 random bytes in hexadecimal, from which every SSH key of the cloud is derived.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rand::Rng;
use tarn_control::Secrets;
use tarn_store::{Store, installation};

use crate::config::Config;
use crate::data;
use crate::failure::{Failure, Result};

/// Under this name the database keeps which key it belongs to.
pub(crate) const REMEMBERED: &str = "secret_key";

/// Reads the master key, or makes one if nothing was made with another. A database that belongs to another key is refused: every
/// host key would change, and what was encrypted would be lost.
pub(crate) async fn load(config: &Config, store: &Store) -> Result<Secrets> {
    let path = path(config);
    if let Some(secrets) = read(&path)? {
        return match remember(store, &secrets).await? {
            true => Ok(secrets),
            false => Err(Failure(format!(
                "{} holds another master key than the one this database belongs to; give the right one as --secret-key-file",
                path.display()
            ))),
        };
    }
    if let Some(secrets) = adopt(&path, store).await? {
        return Ok(secrets);
    }
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let prepared = data::prepare(&path, &text)?;
    let secrets = Secrets::new(bytes);
    // On disk before anything depends on it, and in its place only if the database took it.
    match remember(store, &secrets).await {
        Ok(true) => data::publish(&prepared, &path).map(|()| secrets),
        Ok(false) => {
            let _ = std::fs::remove_file(prepared);
            Err(Failure(format!(
                "this database belongs to a master key that is not at {}: bring it back, or copy it from another replica",
                path.display()
            )))
        }
        Err(failure) => {
            let _ = std::fs::remove_file(prepared);
            Err(failure)
        }
    }
}

/// Where the master key is.
pub(crate) fn path(config: &Config) -> PathBuf {
    config.secret_key_file.clone().unwrap_or_else(|| config.data.join("secret.key"))
}

/// Takes over a key that an engine wrote, and that the database took, before it died on the last step.
async fn adopt(path: &Path, store: &Store) -> Result<Option<Secrets>> {
    let known = store.read(|tx| installation::get(tx, REMEMBERED)).await;
    let known = known.map_err(|e: tarn_store::Error| Failure::doing("cannot check the master key", e))?;
    let (Some(known), Some(directory), Some(name)) = (known, path.parent(), path.file_name()) else { return Ok(None) };
    let prefix = format!("{}.", name.to_string_lossy());
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix)
            && let Ok(Some(secrets)) = read(&entry.path())
            && secrets.fingerprint() == known
        {
            return data::publish(&entry.path(), path).map(|()| Some(secrets));
        }
    }
    Ok(None)
}

/// Whether the database belongs to this key; one that belongs to none does from now on.
async fn remember(store: &Store, secrets: &Secrets) -> Result<bool> {
    let own = secrets.fingerprint();
    let wanted = own.clone();
    let kept = store.write(move |tx| installation::remember_once(tx, REMEMBERED, &wanted)).await;
    kept.map(|kept| kept == own).map_err(|e: tarn_store::Error| Failure::doing("cannot check the master key", e))
}

/// Reads a master key; `None` where there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Secrets>> {
    let shown = path.display();
    let failed = |e| Failure::doing(format!("cannot read the master key {shown}"), e);
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    if metadata.mode() & 0o077 != 0 {
        return Err(Failure(format!("the master key {shown} may be read by others: chmod 600 it")));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let digits = text.trim();
    let mut bytes = [0; 32];
    let right = digits.len() == 64 && digits.is_ascii();
    for (at, byte) in bytes.iter_mut().enumerate() {
        let digit = digits.get(2 * at..2 * at + 2).filter(|_| right);
        *byte = digit.and_then(|digit| u8::from_str_radix(digit, 16).ok()).ok_or_else(|| {
            Failure(format!("{shown} is not a master key: it must be 64 hexadecimal digits and nothing else"))
        })?;
    }
    Ok(Some(Secrets::new(bytes)))
}
