//! Diagnosis of a database for the operator. Everything here only reads.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::host_binding::DriverBinding;

use crate::db::{migrations, params};
use crate::{Error, Result, Store, Tx, db, installation};

/// The schema version that this program supports.
pub const SCHEMA_VERSION: i64 = db::SCHEMA_VERSION;

/// The self-diagnosis of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The name and version of the database software.
    pub database: String,
    /// Faults found in the file. `None` when the check did not run or took too long.
    pub faults: Option<Vec<String>>,
    /// The size of the write-ahead log beside the file.
    pub log_bytes: u64,
    /// The time according to the server's clock.
    pub now: Option<Time>,
    /// Whether the server sorts by bytes.
    pub is_byte_order: Option<bool>,
    /// The privileges that the database user lacks.
    pub refused: Vec<String>,
}

/// Work that should have been done already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// Requests that no runner holds or that are past their deadline.
    pub requests: Vec<String>,
    /// Jobs that no engine runs.
    pub jobs: Vec<String>,
}

/// The maximum number of ids listed of each kind.
const MAX_LISTED: u32 = 20;

/// How the databases report a missing table. Any other error must not be taken for an empty database.
const MISSING_TABLE_ERRORS: [&str; 2] = ["no such table", "(42P01)"];

/// Runs the self-diagnosis of the database.
pub async fn health(store: &Store) -> Result<Health> {
    store.health().await
}

/// Returns the version of the schema; `None` for an empty database.
pub fn version(tx: &mut Tx<'_>) -> Result<Option<i64>> {
    unless_missing(tx.row("select count(*) from migrations", &[], |row| row.integer()))
}

/// Returns which driver a database of any schema is bound to. An empty database and one of schema 1 are bound to none.
pub fn driver_binding(tx: &mut Tx<'_>) -> Result<Option<DriverBinding>> {
    unless_missing(installation::driver_binding(tx))
}

/// Returns the addresses from which engines, and commands that write, are connected to a database on a server. Such a
/// process is not connected itself when it asks with [`Store::open_read_only`].
pub async fn users(store: &Store) -> Result<Vec<String>> {
    store.users().await
}

fn unless_missing<T>(read: Result<Option<T>>) -> Result<Option<T>> {
    match read {
        Err(Error::Database(why)) if MISSING_TABLE_ERRORS.iter().any(|missing| why.contains(missing)) => Ok(None),
        read => read,
    }
}

/// Returns why this program refuses to open the database, if its migrations are those of a newer program or of another
/// one. A database without hashes is not examined: that happens when it is opened.
pub fn refusal(tx: &mut Tx<'_>) -> Result<Option<String>> {
    let read = |row: &mut db::Row| {
        Ok(migrations::Recorded { version: row.integer()?, hash: row.maybe_text()?, program: row.maybe_text()? })
    };
    match tx.rows(migrations::ROWS, &[], read) {
        Ok(recorded) => Ok(migrations::check(&recorded).err().map(|error| error.to_string())),
        // The columns or the table do not exist.
        Err(Error::Database(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns work that has been due for longer than `grace`. A request that is being undone is past its deadline already,
/// so only its due time counts.
pub fn overdue(tx: &mut Tx<'_>, grace: Duration) -> Result<Overdue> {
    let late = tx.now().before(grace);
    let sql = "select id from requests where ended_us is null and lease_until_us < $1 and (due_us < $1 or (failure is null and deadline_us < $1)) \
               order by due_us, id limit $2";
    let requests = tx.rows(sql, &params![late, MAX_LISTED], |row| row.text())?;
    let sql = "select id from jobs where ended_us is null and state in ('STARTING', 'RUNNING', 'STOPPING', 'COLLECTING') \
               and lease_until_us < $1 and since_us < $1 order by created_us, id limit $2";
    let jobs = tx.rows(sql, &params![late, MAX_LISTED], |row| row.text())?;
    Ok(Overdue { requests, jobs })
}
