//! Making a backup.
//!
//! The order is what makes it consistent: the files of objects are held, then the database is copied, then the files
//! that the copy names are brought into the directory of backups. A file that the engine stores meanwhile is not
//! named; a file that it deletes meanwhile is still there.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tarn_base::files;
use tarn_model::{Clock as _, Time};
use tarn_store::{Database, Store};

use super::hold::Hold;
use super::options::CreateOptions;
use super::parts::contents::{self, Collected};
use super::parts::database::Identity;
use super::parts::{database, sealed_key, volumes};
use super::place::location::Location;
use super::place::manifest::{FORMAT, Manifest, SEALED_KEY};
use super::place::sums::FileSum;
use super::place::{Place, retention};
use super::record::LastBackup;
use super::{join_some, print_json, say, verify};
use crate::config::Config;
use crate::data::{master_key, ownership_mark};
use crate::environment::SystemClock;
use crate::failure::{Failure, Result};

/// The installation that is backed up.
struct Source {
    config: Config,
    database: Database,
    store: Store,
    identity: Identity,
    objects: PathBuf,
    pool: PathBuf,
}

/// Makes a backup. The exit code is 1 if the backup is complete but something of the installation was damaged before.
pub(super) async fn create_backup(options: &CreateOptions, is_json: bool) -> Result<ExitCode> {
    let location = options.location()?;
    let source = open_source(options).await?;
    let key = read_key(options, &source)?;
    let place = Place::open_for_writing(&location, &source.config.data).await?;
    let made = create_in(&place, &location, &source, options, key).await;
    if made.is_err() {
        // The next backup removes what is left if this fails, too.
        let _ = retention::remove_leftovers(&place).await;
    }
    place.medium.close().await;
    let (manifest, collected, removed) = made?;
    report(&manifest, &collected, &removed, is_json);
    Ok(if manifest.objects.damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn create_in(
    place: &Place,
    location: &Location,
    source: &Source,
    options: &CreateOptions,
    key: Option<String>,
) -> Result<(Manifest, Collected, Vec<String>)> {
    refuse_own_bucket(place, source).await?;
    retention::remove_leftovers(place).await?;
    let now = SystemClock.now();
    let (name, directory) = place.begin(now).await?;
    let (manifest, collected) = fill(place, source, options, (&name, now, &directory), key).await?;
    let failed = |e| Failure::with_cause("cannot complete the backup", e);
    place.medium.publish(&name, &directory).await.map_err(failed)?;
    LastBackup::new(name.clone(), location.absolute(), manifest.created_us).write(&source.config.data)?;
    let noted = contents::note_read(&*place.medium, &collected).await;
    noted.map_err(|e| Failure::with_cause("the backup is complete, but the next one has no note of it", e))?;
    let removed = retention::remove_old(place, options.keep, &name).await?;
    Ok((manifest, collected, removed))
}

/// Refuses a bucket that the engine itself serves: the backup would be lost with the installation, and each one would
/// have those before it.
async fn refuse_own_bucket(place: &Place, source: &Source) -> Result<()> {
    let Some(trace) = place.medium.trace() else { return Ok(()) };
    let (bucket, key, etag) = (trace.bucket.clone(), trace.key, trace.etag);
    let found = source.store.read(move |tx| tarn_store::backup::has_object(tx, &bucket, &key, &etag)).await;
    if found.map_err(|e: tarn_store::Error| Failure::with_cause("cannot read the database", e))? {
        return Err(Failure(format!(
            "bucket {} is in the installation that is to be backed up; give a bucket of another server, or a directory",
            trace.bucket
        )));
    }
    Ok(())
}

/// Finds everything that belongs to the installation, and checks that it belongs together.
async fn open_source(options: &CreateOptions) -> Result<Source> {
    let config = options.installation.load_config()?;
    let database = config.database()?;
    if let Database::Sqlite(path) = &database
        && !path.exists()
    {
        let data = config.data.display();
        return Err(Failure(format!("there is no database in {data}; give the data directory with --data")));
    }
    let store = database::open(&database).await?;
    let identity = database::read_identity(&store).await?;
    let objects = config.objects_directory();
    let mark = ownership_mark::read_mark(&objects)?;
    if identity.objects_mark.is_some() && mark != identity.objects_mark {
        return Err(Failure(format!(
            "the objects of this database are not in {}; give the configuration of the engine with --config",
            objects.display()
        )));
    }
    let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
    let pool = config.pool().unwrap_or_else(|| data.join("volumes"));
    Ok(Source { config, database, store, identity, objects, pool })
}

/// Reads the master key and encrypts it; `None` if it is left out.
fn read_key(options: &CreateOptions, source: &Source) -> Result<Option<String>> {
    let identity = &source.identity;
    if options.without_key || identity.key_fingerprint.is_none() {
        return Ok(None);
    }
    let path = master_key::master_key_path(&source.config);
    let shown = path.display();
    let secrets = master_key::read_master_key(&path)?;
    if secrets.map(|secrets| secrets.fingerprint()) != identity.key_fingerprint {
        return Err(Failure(format!(
            "{shown} is not the master key of this database; give the right file with --secret-key-file, or leave the \
             key out with --without-key"
        )));
    }
    let passphrase = options.passphrase.read()?.ok_or_else(|| {
        Failure(
            "give a passphrase for the master key with --passphrase-file or TARN_BACKUP_PASSPHRASE, or leave the key out \
             with --without-key and keep a copy of it elsewhere"
                .to_owned(),
        )
    })?;
    let text = std::fs::read_to_string(&path).map_err(|e| Failure::with_cause(format!("cannot read {shown}"), e))?;
    sealed_key::seal(text.trim(), &passphrase).map(Some)
}

/// Fills the directory of a backup, and verifies it.
async fn fill(
    place: &Place,
    source: &Source,
    options: &CreateOptions,
    (name, now, directory): (&str, Time, &Path),
    key: Option<String>,
) -> Result<(Manifest, Collected)> {
    let failed = |e: std::io::Error| Failure::with_cause("cannot write the backup", e);
    let hold = Hold::take(&source.objects).await?;
    let copied = database::copy(&source.database, &source.store, directory).await?;
    let (medium, facts) = (&*place.medium, copied.facts);
    let database_file = FileSum::of(directory, copied.name).map_err(failed)?;
    let collected = contents::collect(medium, &source.objects, &facts.files, directory).await;
    let (objects, collected) = collected.map_err(failed)?;
    hold.release()?;
    let (volumes, volumes_left_out) = if options.volumes {
        let copied = volumes::copy_volumes(&source.pool, &facts.volumes, (medium, name, directory)).await;
        copied.map_err(failed)?
    } else {
        (Vec::new(), Vec::new())
    };
    let secret_key = match key {
        Some(sealed) => {
            files::write_file(&directory.join(SEALED_KEY), sealed.as_bytes(), 0o600).map_err(failed)?;
            Some(FileSum::of(directory, SEALED_KEY).map_err(failed)?)
        }
        None => None,
    };
    let manifest = Manifest {
        format: FORMAT,
        name: name.to_owned(),
        created_us: now.as_micros(),
        created: now.to_string(),
        tarn: env!("CARGO_PKG_VERSION").to_owned(),
        schema: facts.identity.schema,
        database: copied.kind,
        database_file,
        secret_key,
        key_fingerprint: facts.identity.key_fingerprint,
        objects,
        volumes,
        volumes_left_out,
    };
    manifest.write(directory).map_err(failed)?;
    // The contents and the volumes were compared when they were brought.
    let faults = verify::faults_of_new_files(&manifest, directory).await;
    if !faults.is_empty() {
        return Err(Failure(format!("the backup was not written correctly:\n  {}", join_some(&faults))));
    }
    Ok((manifest, collected))
}

fn report(manifest: &Manifest, collected: &Collected, removed: &[String], is_json: bool) {
    print_json(is_json, manifest);
    let objects = &manifest.objects;
    say(is_json, format!("Backup {} is complete and verified.", manifest.name));
    say(is_json, format!("  database  {} bytes, schema {}", manifest.database_file.bytes, manifest.schema));
    say(
        is_json,
        format!(
            "  objects   {} files with {} bytes, of which {} files with {} bytes are new ({} by reference)",
            objects.files, objects.bytes, collected.new_files, collected.new_bytes, collected.linked
        ),
    );
    let volumes: u64 = manifest.volumes.iter().map(|volume| volume.file.bytes).sum();
    say(is_json, format!("  volumes   {} with {volumes} bytes", manifest.volumes.len()));
    let key = if manifest.secret_key.is_some() { "encrypted with the passphrase" } else { "left out" };
    say(is_json, format!("  key       {key}"));
    if !collected.replaced.is_empty() {
        eprintln!(
            "tarn: {} contents of earlier backups were damaged, and have been replaced; find out what is wrong with the \
             place:\n  {}",
            collected.replaced.len(),
            join_some(&collected.replaced)
        );
    }
    if !removed.is_empty() {
        say(is_json, format!("  removed   {}", removed.join(", ")));
    }
    if !manifest.volumes_left_out.is_empty() {
        eprintln!("tarn: volumes that are not in the backup:\n  {}", join_some(&manifest.volumes_left_out));
    }
    if !objects.damaged.is_empty() {
        eprintln!(
            "tarn: {} files of objects were damaged before the backup, and are not in it:\n  {}",
            objects.damaged.len(),
            join_some(&objects.damaged)
        );
    }
}
