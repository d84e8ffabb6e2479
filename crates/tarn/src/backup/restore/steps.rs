//! The single steps of a restore: the master key, the database, the objects and the volumes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tarn_driver::local::restored_pool;
use tarn_model::ids::VolumeId;
use tarn_store::backup::NamedFile;
use tarn_store::{Database, Store, backup};

use super::target::Target;
use crate::backup::options::RestoreOptions;
use crate::backup::parts::{contents, database, postgres, sealed_key};
use crate::backup::place::directory::create_directory;
use crate::backup::place::manifest::{Manifest, SEALED_KEY};
use crate::backup::place::{Backup, Place, shard};
use crate::data::{master_key, ownership_mark};
use crate::environment::{RandomIds, SystemClock};
use crate::failure::{Failure, Result};

/// Returns the master key: that of the backup, or the one that was given. `None` in a trial without either.
pub(super) async fn open_key(
    options: &RestoreOptions,
    place: &Place,
    backup: &Backup,
    manifest: &Manifest,
) -> Result<Option<String>> {
    let Some(fingerprint) = &manifest.key_fingerprint else { return Ok(None) };
    let passphrase = options.passphrase.read()?;
    let key = match (&options.installation.secret_key_file, passphrase) {
        (Some(path), _) => fs::read_to_string(path).map_err(|e| Failure::with_cause(path.display(), e))?,
        (None, Some(passphrase)) if manifest.secret_key.is_some() => {
            let sealed = place.medium.read_file(&backup.name, SEALED_KEY).await;
            let sealed = sealed.map_err(|e| Failure::with_cause("cannot read the encrypted key", e))?;
            sealed_key::open(&String::from_utf8_lossy(&sealed), &passphrase)?
        }
        (None, _) if options.check => return Ok(None),
        (None, _) if manifest.secret_key.is_some() => {
            let todo = "give the passphrase of the master key with --passphrase-file or TARN_BACKUP_PASSPHRASE";
            return Err(Failure(todo.to_owned()));
        }
        (None, _) => {
            let todo = "the backup was made without the master key; give the file with --secret-key-file";
            return Err(Failure(todo.to_owned()));
        }
    };
    match master_key::parse_master_key(&key) {
        Some(secrets) if secrets.fingerprint() == *fingerprint => Ok(Some(key.trim().to_owned())),
        _ => Err(Failure("this is not the master key of the backup".to_owned())),
    }
}

pub(super) async fn restore_database(target: &Target, place: &Place, from: &Backup, manifest: &Manifest) -> Result<()> {
    let failed = |e: io::Error| Failure::with_cause("cannot write the database", e);
    let (medium, file) = (&place.medium, &manifest.database_file.name);
    match &target.database {
        Database::Sqlite(path) => medium.copy_file(&from.name, file, path).await.map_err(failed),
        Database::Postgres(url) => {
            let store = database::open(&target.database).await?;
            let is_empty = store.read(backup::is_empty).await;
            if !is_empty.map_err(|e: tarn_store::Error| Failure::with_cause("cannot read the database", e))? {
                return Err(Failure("the database is not empty; give an empty one with --database".to_owned()));
            }
            let source = medium.local_file(&from.name, file).await.map_err(failed)?;
            postgres::restore(&postgres::find_program("pg_restore", &store).await?, url, &source.path)
        }
    }
}

/// Opens the restored database, which brings it to the schema of this program.
pub(super) async fn open_restored(database: &Database) -> Result<Store> {
    let store = Store::open(database, Arc::new(SystemClock), Arc::new(RandomIds)).await;
    let store = store.map_err(|e| Failure::with_cause("cannot open the restored database", e))?;
    store.limit_transactions(database::LIMIT);
    Ok(store)
}

/// Restores the contents of objects, or completes those that survived.
pub(super) async fn restore_objects(target: &Target, place: &Place, list: &[NamedFile]) -> Result<()> {
    let failed = |e: io::Error| Failure::with_cause("cannot restore the objects", e);
    if let Some(surviving) = &target.surviving {
        return surviving.complete(&*place.medium, list).await.map_err(failed);
    }
    create_directory(&target.objects).map_err(failed)?;
    // First, because the next restore recognizes by it what this one left.
    ownership_mark::write_mark(&target.objects, &target.mark)?;
    let restored = contents::restore_contents(&*place.medium, list, &target.objects, target.is_trial).await;
    for fault in restored.map_err(failed)? {
        // The verification has reported it, and it is missing in the report.
        eprintln!("tarn: {fault}");
    }
    Ok(())
}

/// Returns the files that the database names and that are not there, or not intact if the survivors are to be verified;
/// and how many are there that it does not name.
pub(super) async fn missing_objects(store: &Store, target: &Target) -> Result<(Vec<String>, u64)> {
    let failed = |e: io::Error| Failure::with_cause("cannot read the objects", e);
    let named = database::read_facts(store).await?.files;
    if let Some(surviving) = &target.surviving {
        let mut missing = Vec::new();
        for file in &named {
            if let Some(why) = surviving.fault(file).map_err(failed)? {
                missing.push(format!("{}: {why}", file.file));
            }
        }
        return Ok((missing, surviving.count_unnamed(&named).map_err(failed)?));
    }
    let is_there = |file: &NamedFile| {
        let path = target.objects.join(shard(&file.file)).join(file.file.as_str());
        path.metadata().is_ok_and(|found| found.len() == file.bytes)
    };
    Ok((named.iter().filter(|file| !is_there(file)).map(|file| file.file.to_string()).collect(), 0))
}

/// Returns the volumes that will have their data: those of the backup, and those in the pool. In a trial, those of the
/// backup count as restored: their checksums were compared.
pub(super) fn present_volumes(target: &Target, manifest: &Manifest) -> Result<BTreeSet<VolumeId>> {
    let mut present: BTreeSet<VolumeId> = manifest.volumes.iter().filter_map(|volume| volume.id.parse().ok()).collect();
    let there = restored_pool::volumes_in(&target.pool);
    present.extend(there.map_err(|e| Failure::with_cause("cannot read the pool of the volumes", e))?);
    Ok(present)
}

/// Restores the volumes of the backup that the pool does not have.
pub(super) async fn restore_volumes(
    target: &Target,
    place: &Place,
    backup: &Backup,
    manifest: &Manifest,
) -> Result<()> {
    let failed = |e: io::Error| Failure::with_cause("cannot restore the volumes", e);
    for volume in &manifest.volumes {
        let Ok(id) = volume.id.parse::<VolumeId>() else { continue };
        if !restored_pool::volume_file(&target.pool, &id).exists() {
            let fill = |to: &Path| {
                let copied = place.medium.copy_file(&backup.name, &volume.file.name, to);
                tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(copied))
            };
            restored_pool::fill_volume(&target.pool, &id, fill).map_err(failed)?;
        }
    }
    Ok(())
}
