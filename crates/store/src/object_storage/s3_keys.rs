//! Access keys of object storage. Each belongs to a user, and opens the object storage of one organization.

use tarn_model::Time;
use tarn_model::ids::{OrgId, UserId};
use tarn_model::s3_keys::S3Key;

use crate::db::{Row, params};
use crate::{Result, Tx};

/// The maximum number of keys of one user that are read at a time.
const MAX_OF_USER: u32 = 100;

/// The holder of an access key that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    /// The organization whose objects the key opens.
    pub org: OrgId,
    /// The user of the key; `None` for the legacy key of an organization.
    pub user: Option<UserId>,
    /// When the key stops working, if that is known.
    pub ends: Option<Time>,
}

/// A key with its user, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedKey {
    pub key: S3Key,
    pub email: String,
    /// Whether the user cannot use the key: they are disabled, or have left the organization.
    pub suspended: bool,
}

/// Which keys of an organization are listed.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    pub org: &'a OrgId,
    /// Only the keys of this user.
    pub user: Option<&'a UserId>,
    /// Includes the keys that no longer work.
    pub ended: bool,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select k.access_key, k.user_id, k.org_id, k.name, k.created_us, k.last_used_us, k.ends_us, k.revoked from s3_keys k ",
            $rest
        )
    };
}

/// Returns the holder of an access key, if the key works: it has not ended, its user is not disabled and is still in
/// the organization, and the organization has object storage. One query, because every S3 call makes it.
pub fn holder(tx: &mut Tx<'_>, access_key: &str) -> Result<Option<KeyHolder>> {
    let now = tx.now();
    let sql = "select k.org_id, k.user_id, k.ends_us from s3_keys k \
               join users u on u.id = k.user_id and u.org_id = k.org_id and u.disabled = 0 \
               join accounts a on a.org_id = k.org_id and a.closing = 0 \
               where k.access_key = $1 and k.revoked = 0 and (k.ends_us is null or k.ends_us > $2) \
               union all \
               select org_id, null, null from accounts where legacy_key = $1 and closing = 0";
    tx.row(sql, &params![access_key, now], |row| {
        Ok(KeyHolder { org: row.id()?, user: row.maybe_id()?, ends: row.maybe_time()? })
    })
}

/// Adds a key.
pub fn insert(tx: &mut Tx<'_>, key: &S3Key) -> Result<()> {
    let sql = "insert into s3_keys (access_key, user_id, org_id, name, created_us) values ($1, $2, $3, $4, $5)";
    tx.run(sql, &params!(key: id, user, org, name, created))
}

/// Returns the key with this id.
pub fn get(tx: &mut Tx<'_>, id: &str) -> Result<Option<S3Key>> {
    tx.row(select!("where k.access_key = $1"), &params![id], read_key)
}

/// Returns the keys of a user in an organization, newest first, with those that have ended.
pub fn of_user(tx: &mut Tx<'_>, user: &UserId, org: &OrgId) -> Result<Vec<S3Key>> {
    let sql = select!("where k.user_id = $1 and k.org_id = $2 order by k.created_us desc, k.access_key desc limit $3");
    tx.rows(sql, &params![user, org, MAX_OF_USER], read_key)
}

/// Returns a page of keys, newest first.
pub fn list(
    tx: &mut Tx<'_>,
    selection: Selection<'_>,
    after: Option<(Time, &str)>,
    limit: u32,
) -> Result<Vec<ListedKey>> {
    let (time, id) = after.unwrap_or((Time::from_micros(i64::MAX), ""));
    // Every key ends after the beginning of time.
    let working_at = if selection.ended { Time::from_micros(i64::MIN) } else { tx.now() };
    let user = selection.user.map_or("", UserId::as_str);
    let sql = "select k.access_key, k.user_id, k.org_id, k.name, k.created_us, k.last_used_us, k.ends_us, k.revoked, u.email, \
               u.disabled, coalesce(u.org_id, '') from s3_keys k join users u on u.id = k.user_id \
               where k.org_id = $1 and ($2 = '' or k.user_id = $2) and (k.ends_us is null or k.ends_us > $3) \
               and k.revoked <= $4 and (k.created_us, k.access_key) < ($5, $6) \
               order by k.created_us desc, k.access_key desc limit $7";
    tx.rows(sql, &params![selection.org, user, working_at, selection.ended, time, id, limit], |row| {
        let (key, email, disabled, org) = (read_key(row)?, row.text()?, row.flag()?, row.text()?);
        Ok(ListedKey { suspended: disabled || org != key.org.as_str(), key, email })
    })
}

/// Sets when a key stops working, if it was not revoked.
pub fn set_end(tx: &mut Tx<'_>, id: &str, at: Time) -> Result<()> {
    tx.execute_guarded("update s3_keys set ends_us = $1 where access_key = $2 and revoked = 0", &params![at, id])
}

macro_rules! revoke {
    ($which:literal) => {
        concat!(
            "update s3_keys set revoked = 1, ends_us = case when ends_us <= $1 then ends_us else $1 end \
             where revoked = 0 and ",
            $which
        )
    };
}

/// Ends a key on every replica at once, whatever its clock.
pub fn revoke(tx: &mut Tx<'_>, id: &str) -> Result<()> {
    let now = tx.now();
    tx.run(revoke!("access_key = $2"), &params![now, id])
}

/// Ends all keys of an organization.
pub fn end_of_organization(tx: &mut Tx<'_>, org: &OrgId) -> Result<()> {
    let now = tx.now();
    tx.run(revoke!("org_id = $2"), &params![now, org])
}

/// Ends the keys of users who have left the organization of the key, so that they do not work again should the user
/// return. Examines as many keys as `limit` says, ordered by id, after this one. Returns the number of keys that were
/// ended, and the last key if there may be more.
pub fn end_of_departed(tx: &mut Tx<'_>, after: &str, limit: u32) -> Result<(u64, Option<String>)> {
    let sql = "select access_key from s3_keys where access_key > $1 order by access_key limit $2";
    let mut examined = tx.rows(sql, &params![after, limit], |row| row.text())?;
    let is_full = examined.len() == limit as usize;
    let Some(last) = examined.pop() else { return Ok((0, None)) };
    let now = tx.now();
    let sql = revoke!(
        "access_key > $2 and access_key <= $3 \
         and not exists (select 1 from users u where u.id = s3_keys.user_id and u.org_id = s3_keys.org_id)"
    );
    Ok((tx.execute(sql, &params![now, after, last])?, is_full.then_some(last)))
}

/// Records when a key was used.
pub fn set_used(tx: &mut Tx<'_>, id: &str, at: Time) -> Result<()> {
    // Another replica may have recorded a later use.
    let sql = "update s3_keys set last_used_us = $1 where access_key = $2 and coalesce(last_used_us, 0) < $1";
    tx.run(sql, &params![at, id])
}

/// Removes a key.
pub fn remove(tx: &mut Tx<'_>, id: &str) -> Result<()> {
    tx.run("delete from s3_keys where access_key = $1", &params![id])
}

fn read_key(row: &mut Row) -> Result<S3Key> {
    Ok(S3Key {
        id: row.text()?,
        user: row.id()?,
        org: row.id()?,
        name: row.text()?,
        created: row.time()?,
        last_used: row.maybe_time()?,
        ends: row.maybe_time()?,
        revoked: row.flag()?,
    })
}
