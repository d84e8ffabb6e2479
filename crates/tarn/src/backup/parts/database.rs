//! The database of a backup: one consistent state, and the files and volumes that it names.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::ids::VolumeId;
use tarn_model::storage::VolumeState;
use tarn_store::backup::NamedFile;
use tarn_store::{Database, Store, Tx, attachments, backup, examine, installation, storage};

use super::postgres;
use crate::backup::place::manifest::{DUMP, DatabaseKind, SQLITE};
use crate::backup::place::sums::seal_file;
use crate::data::master_key::FINGERPRINT_NAME;
use crate::data::ownership_mark::MARK_NAME;
use crate::environment::{RandomIds, SystemClock};
use crate::failure::{Failure, Result};

/// The number of rows read at a time.
const PAGE: u32 = 5000;

/// What a database says about itself.
pub(in crate::backup) struct Identity {
    pub(in crate::backup) schema: i64,
    pub(in crate::backup) key_fingerprint: Option<String>,
    /// The mark of the directory of objects.
    pub(in crate::backup) objects_mark: Option<String>,
}

/// What a copied database says about the rest of the backup.
pub(in crate::backup) struct Facts {
    pub(in crate::backup) identity: Identity,
    pub(in crate::backup) files: Vec<NamedFile>,
    /// The volumes that exist, and whether a cluster uses each.
    pub(in crate::backup) volumes: Vec<(VolumeId, bool)>,
}

/// A database that was copied.
pub(in crate::backup) struct Copied {
    pub(in crate::backup) kind: DatabaseKind,
    pub(in crate::backup) name: &'static str,
    pub(in crate::backup) facts: Facts,
}

/// How long a database server may take for a transaction of a backup or a restore, which read or change everything.
pub(in crate::backup) const LIMIT: Duration = Duration::from_secs(3600);

/// Opens the database of an installation for reading.
pub(in crate::backup) async fn open(database: &Database) -> Result<Store> {
    open_as(database, false).await
}

/// Opens a database that no other process uses.
pub(in crate::backup) async fn open_alone(database: &Database) -> Result<Store> {
    open_as(database, true).await
}

async fn open_as(database: &Database, is_alone: bool) -> Result<Store> {
    let opened = Store::open_read_only(database, is_alone, Arc::new(SystemClock), Arc::new(RandomIds)).await;
    let store = opened.map_err(|e| Failure::with_cause("cannot open the database", e))?;
    store.limit_transactions(LIMIT);
    Ok(store)
}

/// Reads the identity of a database. Fails unless it has the schema of this program.
pub(in crate::backup) async fn read_identity(store: &Store) -> Result<Identity> {
    let read = store.read(identity_in).await;
    read.map_err(|e: tarn_store::Error| Failure::with_cause("cannot read the database", e))
}

/// Reads the facts of a database. Fails unless it has the schema of this program.
pub(in crate::backup) async fn read_facts(store: &Store) -> Result<Facts> {
    let read = store.read(facts_in).await;
    read.map_err(|e: tarn_store::Error| Failure::with_cause("cannot read the database", e))
}

/// Copies a database into the directory of a backup.
pub(in crate::backup) async fn copy(database: &Database, source: &Store, directory: &Path) -> Result<Copied> {
    match database {
        Database::Sqlite(path) => {
            let to = directory.join(SQLITE);
            backup::copy_sqlite(path, &to).map_err(|e| Failure::with_cause("cannot copy the database", e))?;
            seal_file(&to).map_err(|e| Failure::with_cause("cannot write the copy of the database", e))?;
            // The facts are those of the copy, so they are exactly its state.
            let copy = open_alone(&Database::Sqlite(to)).await?;
            let facts = read_facts(&copy).await?;
            Ok(Copied { kind: DatabaseKind::Sqlite, name: SQLITE, facts })
        }
        Database::Postgres(url) => {
            let program = postgres::find_program("pg_dump", source).await?;
            let to = directory.join(DUMP);
            // The dump and the facts are of the snapshot of this transaction.
            let read = source.read(|tx| -> std::result::Result<Facts, ReadError> {
                backup::lift_limit(tx)?;
                let snapshot = backup::export_snapshot(tx)?;
                postgres::dump(&program, url, &snapshot, &to)?;
                Ok(facts_in(tx)?)
            });
            let facts = read.await.map_err(|e| e.0)?;
            seal_file(&to).map_err(|e| Failure::with_cause("cannot write the dump of the database", e))?;
            Ok(Copied { kind: DatabaseKind::Postgresql, name: DUMP, facts })
        }
    }
}

fn identity_in(tx: &mut Tx<'_>) -> tarn_store::Result<Identity> {
    if let Some(why) = examine::refusal(tx)? {
        return Err(tarn_store::Error::Schema(why));
    }
    let schema = examine::version(tx)?.unwrap_or_default();
    if schema < examine::SCHEMA_VERSION {
        let known = examine::SCHEMA_VERSION;
        let why =
            format!("it has schema {schema}, and this program knows {known}: start the engine of this version once");
        return Err(tarn_store::Error::Schema(why));
    }
    let key_fingerprint = installation::get(tx, FINGERPRINT_NAME)?;
    let objects_mark = installation::get(tx, MARK_NAME)?;
    Ok(Identity { schema, key_fingerprint, objects_mark })
}

fn facts_in(tx: &mut Tx<'_>) -> tarn_store::Result<Facts> {
    backup::lift_limit(tx)?;
    let identity = identity_in(tx)?;
    let mut files = Vec::new();
    loop {
        let after = files.last().map_or("", |file: &NamedFile| file.file.as_str()).to_owned();
        let page = backup::named_files(tx, &after, PAGE)?;
        if page.is_empty() {
            break;
        }
        files.extend(page);
    }
    Ok(Facts { identity, files, volumes: ready_volumes(tx)? })
}

/// Returns the volumes that have their data, and whether each is attached.
fn ready_volumes(tx: &mut Tx<'_>) -> tarn_store::Result<Vec<(VolumeId, bool)>> {
    let (mut ready, mut after) = (Vec::new(), None);
    loop {
        let page = storage::remaining(tx, after.as_ref(), PAGE)?;
        let Some(last) = page.last() else { return Ok(ready) };
        after = Some(last.id.clone());
        for volume in page.into_iter().filter(|volume| volume.state == VolumeState::Ready) {
            let is_used = !attachments::of_volume(tx, &volume.id)?.is_empty();
            ready.push((volume.id, is_used));
        }
    }
}

/// A failure inside of a transaction.
struct ReadError(Failure);

impl From<tarn_store::Error> for ReadError {
    fn from(error: tarn_store::Error) -> Self {
        ReadError(Failure::with_cause("cannot read the database", error))
    }
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        ReadError(failure)
    }
}
