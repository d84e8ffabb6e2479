//! Accounts of object storage: which organizations have one, its usage, and its legacy key.

use tarn_model::Time;
use tarn_model::ids::OrgId;

use crate::db::{Row, params};
use crate::{Result, Tx};

/// The object storage of an organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub org: OrgId,
    /// The id of the key that all members shared before keys belonged to users, until it is retired.
    pub legacy_key: Option<String>,
    /// When the legacy key was last used.
    pub legacy_used: Option<Time>,
    /// Whether the account was disabled and is being emptied. Its keys are no longer valid.
    pub closing: bool,
    /// The bytes it holds, including open uploads and old versions.
    pub bytes: u64,
    /// The number of objects it holds, including old versions.
    pub objects: u64,
    /// The number of S3 calls.
    pub requests: u64,
    pub created: Time,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select org_id, legacy_key, legacy_used_us, closing, bytes, objects, requests, created_us from accounts ",
            $rest
        )
    };
}

/// Adds an empty account. `Taken` when the organization has one.
pub fn insert(tx: &mut Tx<'_>, org: &OrgId) -> Result<()> {
    let now = tx.now();
    let sql = "insert into accounts (org_id, access_key, closing, bytes, objects, requests, created_us) \
               values ($1, $1, 0, 0, 0, 0, $2)";
    tx.run(sql, &params![org, now])
}

/// Returns the account of an organization.
pub fn get(tx: &mut Tx<'_>, org: &OrgId) -> Result<Option<Account>> {
    tx.row(select!("where org_id = $1"), &params![org], read_account)
}

/// Ends the legacy key of an account.
pub fn retire_legacy_key(tx: &mut Tx<'_>, org: &OrgId) -> Result<()> {
    tx.execute_guarded("update accounts set legacy_key = null where org_id = $1", &params![org])
}

/// Records when a legacy key was used.
pub fn set_legacy_key_used(tx: &mut Tx<'_>, legacy_key: &str, at: Time) -> Result<()> {
    tx.run("update accounts set legacy_used_us = $1 where legacy_key = $2", &params![at, legacy_key])
}

/// Returns how many organizations have a legacy key.
pub fn count_legacy_keys(tx: &mut Tx<'_>) -> Result<u64> {
    let sql = "select count(*) from accounts where legacy_key is not null and closing = 0";
    tx.single(sql, &[], |row| row.count())
}

/// Closes an account. It is emptied from now on.
pub fn close(tx: &mut Tx<'_>, org: &OrgId) -> Result<()> {
    tx.execute_guarded("update accounts set closing = 1 where org_id = $1", &params![org])
}

/// Returns accounts that are being emptied.
pub fn closing(tx: &mut Tx<'_>) -> Result<Vec<Account>> {
    tx.rows(select!("where closing = 1 order by org_id limit 100"), &[], read_account)
}

/// Removes an account.
pub fn remove(tx: &mut Tx<'_>, org: &OrgId) -> Result<()> {
    tx.run("delete from accounts where org_id = $1", &params![org])
}

/// Adds to the usage of an account and returns the bytes it holds afterwards; `None` when it was closed.
pub fn charge(tx: &mut Tx<'_>, org: &OrgId, bytes: i64, objects: i64) -> Result<Option<u64>> {
    let sql = "update accounts set bytes = bytes + $1, objects = objects + $2 \
               where org_id = $3 and closing = 0 returning bytes";
    tx.row(sql, &params![bytes, objects, org], |row| row.count())
}

/// Subtracts from the usage of an account, even of a closed one.
pub fn release_usage(tx: &mut Tx<'_>, org: &OrgId, bytes: u64, objects: u64) -> Result<()> {
    let sql = "update accounts set bytes = bytes - $1, objects = objects - $2 where org_id = $3";
    tx.execute_guarded(sql, &params![bytes, objects, org])
}

/// Adds to the number of S3 calls of an account.
pub fn count_requests(tx: &mut Tx<'_>, org: &OrgId, requests: u64) -> Result<()> {
    let sql = "update accounts set requests = requests + $1 where org_id = $2";
    tx.run(sql, &params![requests, org])
}

fn read_account(row: &mut Row) -> Result<Account> {
    Ok(Account {
        org: row.id()?,
        legacy_key: row.maybe_text()?,
        legacy_used: row.maybe_time()?,
        closing: row.flag()?,
        bytes: row.count()?,
        objects: row.count()?,
        requests: row.count()?,
        created: row.time()?,
    })
}
