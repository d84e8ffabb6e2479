//! Accounts of object storage: which organizations have one, its access key, and its usage.

use tarn_model::Time;
use tarn_model::ids::OrgId;

use crate::db::Row;
use crate::{Result, Tx};

/// The object storage of an organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub org: OrgId,
    /// The id of the access key, which identifies the organization.
    pub access_key: String,
    /// Whether the account was disabled and is being emptied. Its key is no longer valid.
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
        concat!("select org_id, access_key, closing, bytes, objects, requests, created_us from accounts ", $rest)
    };
}

/// Adds an empty account. `Taken` when the organization has one.
pub fn insert(tx: &mut Tx<'_>, org: &OrgId, access_key: &str) -> Result<()> {
    let now = tx.now();
    let sql = "insert into accounts (org_id, access_key, closing, bytes, objects, requests, created_us) \
               values ($1, $2, 0, 0, 0, 0, $3)";
    tx.execute(sql, &[org.as_str().into(), access_key.into(), now.into()])?;
    Ok(())
}

/// Returns the account of an organization.
pub fn get(tx: &mut Tx<'_>, org: &OrgId) -> Result<Option<Account>> {
    tx.query_one(select!("where org_id = $1"), &[org.as_str().into()])?.map(read_account).transpose()
}

/// Returns the open account with this access key.
pub fn by_access_key(tx: &mut Tx<'_>, access_key: &str) -> Result<Option<Account>> {
    let sql = select!("where access_key = $1 and closing = 0");
    tx.query_one(sql, &[access_key.into()])?.map(read_account).transpose()
}

/// Replaces the access key of an account.
pub fn set_access_key(tx: &mut Tx<'_>, org: &OrgId, access_key: &str) -> Result<()> {
    tx.execute_guarded(
        "update accounts set access_key = $1 where org_id = $2",
        &[access_key.into(), org.as_str().into()],
    )
}

/// Closes an account. It is emptied from now on.
pub fn close(tx: &mut Tx<'_>, org: &OrgId) -> Result<()> {
    tx.execute_guarded("update accounts set closing = 1 where org_id = $1", &[org.as_str().into()])
}

/// Returns accounts that are being emptied.
pub fn closing(tx: &mut Tx<'_>) -> Result<Vec<Account>> {
    tx.query(select!("where closing = 1 order by org_id limit 100"), &[])?.into_iter().map(read_account).collect()
}

/// Removes an account.
pub fn remove(tx: &mut Tx<'_>, org: &OrgId) -> Result<()> {
    tx.execute("delete from accounts where org_id = $1", &[org.as_str().into()])?;
    Ok(())
}

/// Adds to the usage of an account and returns the bytes it holds afterwards; `None` when it was closed.
pub fn charge(tx: &mut Tx<'_>, org: &OrgId, bytes: i64, objects: i64) -> Result<Option<u64>> {
    let sql = "update accounts set bytes = bytes + $1, objects = objects + $2 \
               where org_id = $3 and closing = 0 returning bytes";
    let row = tx.query_one(sql, &[bytes.into(), objects.into(), org.as_str().into()])?;
    row.map(|mut row| row.count()).transpose()
}

/// Subtracts from the usage of an account, even of a closed one.
pub fn release_usage(tx: &mut Tx<'_>, org: &OrgId, bytes: u64, objects: u64) -> Result<()> {
    let sql = "update accounts set bytes = bytes - $1, objects = objects - $2 where org_id = $3";
    tx.execute_guarded(sql, &[bytes.into(), objects.into(), org.as_str().into()])
}

/// Adds to the number of S3 calls of an account.
pub fn count_requests(tx: &mut Tx<'_>, org: &OrgId, requests: u64) -> Result<()> {
    let sql = "update accounts set requests = requests + $1 where org_id = $2";
    tx.execute(sql, &[requests.into(), org.as_str().into()])?;
    Ok(())
}

fn read_account(mut row: Row) -> Result<Account> {
    Ok(Account {
        org: row.id()?,
        access_key: row.text()?,
        closing: row.flag()?,
        bytes: row.count()?,
        objects: row.count()?,
        requests: row.count()?,
        created: row.time()?,
    })
}
