//! What an operator wants to know of a database that something is wrong with. Everything here only reads.

use std::time::Duration;

use tarn_model::Time;

use crate::{Result, Store, Tx, db};

/// The version of the schema that this program knows.
pub const KNOWN: i64 = db::KNOWN;

/// What the engine below says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Its name and its version.
    pub engine: String,
    /// What is broken in the file; `None` where nobody looked, or it took too long.
    pub faults: Option<Vec<String>>,
    /// How long the log beside the file is.
    pub log_bytes: u64,
    /// What a server's clock says.
    pub now: Option<Time>,
    /// Whether a server sorts by bytes.
    pub is_byte_order: Option<bool>,
    /// What this user of a server may not do.
    pub refused: Vec<String>,
}

/// Work that should have been done by now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// Requests that nobody works on, or that are past their deadline.
    pub requests: Vec<String>,
    /// Jobs that nobody drives.
    pub jobs: Vec<String>,
}

/// How many are told of each.
const MAX_TOLD: u32 = 20;

/// How the engines say that there is no such table. Whatever else they say is no reason to believe that nothing was made.
const MISSING: [&str; 2] = ["no such table", "(42P01)"];

/// Asks the engine below.
pub async fn health(store: &Store) -> Result<Health> {
    store.health().await
}

/// Which version the schema has; `None` where nothing was ever made.
pub fn version(tx: &mut Tx<'_>) -> Result<Option<i64>> {
    match tx.query_one("select count(*) from migrations", &[]) {
        Ok(row) => row.map(|mut row| row.integer()).transpose(),
        Err(crate::Error::Database(why)) if MISSING.iter().any(|missing| why.contains(missing)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What has waited for longer than `grace` for somebody to do it. What is being undone is past its deadline, which is why: it is late
/// when it is due.
pub fn overdue(tx: &mut Tx<'_>, grace: Duration) -> Result<Overdue> {
    let late = tx.now().before(grace);
    let sql = "select id from requests where ended_us is null and lease_until_us < $1 and (due_us < $1 or (failure is null and deadline_us < $1)) \
               order by due_us, id limit $2";
    let requests = tx.query(sql, &[late.into(), MAX_TOLD.into()])?;
    let sql = "select id from jobs where ended_us is null and state in ('STARTING', 'RUNNING', 'STOPPING', 'COLLECTING') \
               and lease_until_us < $1 and since_us < $1 order by created_us, id limit $2";
    let jobs = tx.query(sql, &[late.into(), MAX_TOLD.into()])?;
    let ids = |rows: Vec<db::Row>| rows.into_iter().map(|mut row| row.text()).collect::<Result<Vec<_>>>();
    Ok(Overdue { requests: ids(requests)?, jobs: ids(jobs)? })
}
