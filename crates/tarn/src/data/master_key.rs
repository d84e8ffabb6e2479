//! The master key: a file of 32 random bytes in hexadecimal, from which the SSH host keys and the S3 secrets are
//! derived.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rand::Rng;
use tarn_control::Secrets;
use tarn_store::{Store, installation};

use crate::config::Config;
use crate::data;
use crate::failure::{Failure, Result, StartFailure, StartResult};

/// The name under which the database keeps the fingerprint of its master key.
pub(crate) const FINGERPRINT_NAME: &str = "secret_key";

/// Reads the master key, or creates one for a new database. A database that belongs to another key is refused: every
/// host key would change, and encrypted data would be lost.
pub(crate) async fn load_or_create(config: &Config, store: &Store) -> StartResult<Secrets> {
    let path = master_key_path(config);
    if let Some(secrets) = read_master_key(&path)? {
        return if bind_to_database(store, &secrets).await? {
            Ok(secrets)
        } else {
            Err(Failure(format!(
                "{} is not the master key of this database; give the right file with --secret-key-file",
                path.display()
            ))
            .into())
        };
    }
    if let Some(secrets) = adopt_prepared_key(&path, store).await? {
        return Ok(secrets);
    }
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    let prepared = data::prepare_secret(&path, &hex::encode(bytes))?;
    let secrets = Secrets::new(bytes);
    // The key is on disk before anything depends on it, and in its final place only if the database accepted it.
    match bind_to_database(store, &secrets).await {
        Ok(true) => Ok(data::publish_secret(&prepared, &path).map(|()| secrets)?),
        Ok(false) => {
            let _ = std::fs::remove_file(prepared);
            Err(Failure(format!(
                "the master key of this database is not at {}; restore it, or copy it from another replica",
                path.display()
            ))
            .into())
        }
        Err(failure) => {
            let _ = std::fs::remove_file(prepared);
            Err(failure)
        }
    }
}

/// The path of the master key.
pub(crate) fn master_key_path(config: &Config) -> PathBuf {
    config.secret_key_file.clone().unwrap_or_else(|| config.data.join("secret.key"))
}

/// Puts a prepared key in place if the database accepted it, but the engine stopped before it renamed the file.
async fn adopt_prepared_key(path: &Path, store: &Store) -> StartResult<Option<Secrets>> {
    let known = store.read(|tx| installation::get(tx, FINGERPRINT_NAME)).await;
    let known = known.map_err(|e: tarn_store::Error| StartFailure::with_cause("cannot check the master key", e))?;
    let (Some(known), Some(directory), Some(name)) = (known, path.parent(), path.file_name()) else { return Ok(None) };
    let prefix = format!("{}.", name.to_string_lossy());
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix)
            && let Ok(Some(secrets)) = read_master_key(&entry.path())
            && secrets.fingerprint() == known
        {
            return Ok(data::publish_secret(&entry.path(), path).map(|()| Some(secrets))?);
        }
    }
    Ok(None)
}

/// Binds the database to the key unless it is bound, and returns whether it is bound to this key.
async fn bind_to_database(store: &Store, secrets: &Secrets) -> StartResult<bool> {
    let own = secrets.fingerprint();
    let wanted = own.clone();
    let kept = store.write(move |tx| installation::remember_once(tx, FINGERPRINT_NAME, &wanted)).await;
    kept.map(|kept| kept == own)
        .map_err(|e: tarn_store::Error| StartFailure::with_cause("cannot check the master key", e))
}

/// Reads a master key; `None` if the file does not exist.
pub(crate) fn read_master_key(path: &Path) -> Result<Option<Secrets>> {
    let shown = path.display();
    let failed = |e| Failure::with_cause(format!("cannot read the master key {shown}"), e);
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    if metadata.mode() & 0o077 != 0 {
        return Err(Failure(format!("the master key {shown} is readable by other users; run chmod 600 on it")));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let secrets = parse_master_key(&text).ok_or_else(|| {
        Failure(format!("{shown} is not a master key; it must contain 64 hexadecimal digits and nothing else"))
    })?;
    Ok(Some(secrets))
}

/// Parses the text of a master key.
pub(crate) fn parse_master_key(text: &str) -> Option<Secrets> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text.trim(), &mut bytes).ok().map(|()| Secrets::new(bytes))
}
