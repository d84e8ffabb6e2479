//! Users, organizations and API keys. Only the hash of a key is stored.

use tarn_model::Time;
use tarn_model::ids::{ApiKeyId, OrgId, UserId};
use tarn_model::preferences::Preferences;
use tarn_model::users::{Organization, User};

use crate::db::{Param, Row, params};
use crate::{Error, Result, Tx};

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub id: ApiKeyId,
    pub user: UserId,
    pub created: Time,
    pub revoked: Option<Time>,
    /// When it was last used; up to a minute late.
    pub last_used: Option<Time>,
}

/// Every query for users reads the same columns, in the order of [`read_user`].
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select u.id, u.email, u.org_id, u.org_admin, u.engine_admin, u.disabled, u.created_us from users u ",
            $rest
        )
    };
}

/// Returns the user of a valid key, and the key's id.
pub fn authenticate(tx: &mut Tx<'_>, hash: &[u8; 32]) -> Result<Option<(User, ApiKeyId)>> {
    let sql = "select u.id, u.email, u.org_id, u.org_admin, u.engine_admin, u.disabled, u.created_us, k.id \
               from api_keys k join users u on u.id = k.user_id where k.hash = $1 and k.revoked_us is null";
    tx.row(sql, &params![hash], |row| Ok((read_user(row)?, row.id()?)))
}

/// Returns the user of the API key with this id, if the key is not revoked.
pub fn holder(tx: &mut Tx<'_>, key: &ApiKeyId) -> Result<Option<User>> {
    tx.row(
        select!("join api_keys k on k.user_id = u.id where k.id = $1 and k.revoked_us is null"),
        &params![key],
        read_user,
    )
}

/// Returns the users of those of the keys that are not revoked. Each query covers twenty keys.
pub fn holders(tx: &mut Tx<'_>, keys: &[&str]) -> Result<Vec<(User, ApiKeyId)>> {
    let sql = "select u.id, u.email, u.org_id, u.org_admin, u.engine_admin, u.disabled, u.created_us, k.id \
               from api_keys k join users u on u.id = k.user_id where k.revoked_us is null and k.id in \
               ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)";
    let mut found = Vec::with_capacity(keys.len());
    for batch in keys.chunks(20) {
        let params: [Param<'_>; 20] = std::array::from_fn(|at| batch.get(at).map_or(Param::Null, |id| Param::Text(id)));
        found.extend(tx.rows(sql, &params, |row| Ok((read_user(row)?, row.id()?)))?);
    }
    Ok(found)
}

/// Adds a user. `Taken` when the email address is in use.
pub fn insert(tx: &mut Tx<'_>, user: &User) -> Result<()> {
    let sql = "insert into users (id, email, org_id, org_admin, engine_admin, disabled, created_us) \
               values ($1, $2, $3, $4, $5, $6, $7)";
    tx.run(sql, &params!(user: id, email, org, org_admin, engine_admin, disabled, created))
}

/// Returns the user with this id.
pub fn get(tx: &mut Tx<'_>, id: &UserId) -> Result<Option<User>> {
    tx.row(select!("where u.id = $1"), &params![id], read_user)
}

/// Returns the user with this email address.
pub fn find(tx: &mut Tx<'_>, email: &str) -> Result<Option<User>> {
    tx.row(select!("where u.email = $1"), &params![email], read_user)
}

/// Returns the oldest engine administrator who is not disabled.
pub fn first_admin(tx: &mut Tx<'_>) -> Result<Option<User>> {
    let sql = select!("where u.engine_admin = 1 and u.disabled = 0 order by u.created_us, u.id limit 1");
    tx.row(sql, &[], read_user)
}

/// Returns a page of all users, newest first.
pub fn list(tx: &mut Tx<'_>, after: Option<(Time, &str)>, limit: u32) -> Result<Vec<User>> {
    let (time, id) = after.unwrap_or((Time::from_micros(i64::MAX), ""));
    let sql = select!("where (u.created_us, u.id) < ($1, $2) order by u.created_us desc, u.id desc limit $3");
    tx.rows(sql, &params![time, id, limit], read_user)
}

/// Disables or enables a user.
pub fn set_disabled(tx: &mut Tx<'_>, id: &UserId, disabled: bool) -> Result<()> {
    tx.execute_guarded("update users set disabled = $1 where id = $2", &params![disabled, id])
}

/// Returns a user's preferences. All preferences of a new user are off.
pub fn preferences(tx: &mut Tx<'_>, id: &UserId) -> Result<Preferences> {
    let text = tx.row("select preferences from users where id = $1", &params![id], |row| row.maybe_text())?;
    match text.flatten() {
        Some(text) => serde_json::from_str(&text).map_err(|error| Error::Corrupt(error.to_string())),
        None => Ok(Preferences::default()),
    }
}

/// Saves a user's preferences.
pub fn save_preferences(tx: &mut Tx<'_>, id: &UserId, preferences: &Preferences) -> Result<()> {
    let text = serde_json::to_string(preferences).map_err(|error| Error::Corrupt(error.to_string()))?;
    tx.execute_guarded("update users set preferences = $1 where id = $2", &params![text, id])
}

/// Adds an organization. `Taken` when the name is in use.
pub fn insert_org(tx: &mut Tx<'_>, org: &Organization) -> Result<()> {
    let sql = "insert into organizations (id, name, created_us) values ($1, $2, $3)";
    tx.run(sql, &params![org.id, org.name, org.created])
}

/// Returns the organization with this id.
pub fn org(tx: &mut Tx<'_>, id: &OrgId) -> Result<Option<Organization>> {
    let sql = "select id, name, created_us from organizations where id = $1";
    tx.row(sql, &params![id], read_organization)
}

/// Returns the organization with this name.
pub fn find_org(tx: &mut Tx<'_>, name: &str) -> Result<Option<Organization>> {
    let sql = "select id, name, created_us from organizations where name = $1";
    tx.row(sql, &params![name], read_organization)
}

/// Returns the members of an organization, oldest first; at most a thousand.
pub fn members(tx: &mut Tx<'_>, id: &OrgId) -> Result<Vec<User>> {
    let sql = select!("where u.org_id = $1 order by u.created_us, u.id limit 1000");
    tx.rows(sql, &params![id], read_user)
}

/// Returns the administrators of an organization who are not disabled, oldest first.
pub fn administrators(tx: &mut Tx<'_>, id: &OrgId, limit: u32) -> Result<Vec<User>> {
    let sql =
        select!("where u.org_id = $1 and u.org_admin = 1 and u.disabled = 0 order by u.created_us, u.id limit $2");
    tx.rows(sql, &params![id, limit], read_user)
}

/// Adds an API key.
pub fn insert_key(tx: &mut Tx<'_>, key: &ApiKey, hash: &[u8; 32]) -> Result<()> {
    let sql = "insert into api_keys (id, hash, user_id, created_us) values ($1, $2, $3, $4)";
    tx.run(sql, &params![key.id, hash, key.user, key.created])
}

/// Returns the API key with this id.
pub fn key(tx: &mut Tx<'_>, id: &ApiKeyId) -> Result<Option<ApiKey>> {
    let sql = "select id, user_id, created_us, revoked_us, last_used_us from api_keys where id = $1";
    tx.row(sql, &params![id], read_api_key)
}

/// Returns a page of API keys, of one user or of all, newest first.
pub fn keys(tx: &mut Tx<'_>, user: Option<&UserId>, after: Option<(Time, &str)>, limit: u32) -> Result<Vec<ApiKey>> {
    let (time, id) = after.unwrap_or((Time::from_micros(i64::MAX), ""));
    match user {
        Some(user) => {
            let sql = "select id, user_id, created_us, revoked_us, last_used_us from api_keys \
                       where user_id = $1 and (created_us, id) < ($2, $3) order by created_us desc, id desc limit $4";
            tx.rows(sql, &params![user, time, id, limit], read_api_key)
        }
        None => {
            let sql = "select id, user_id, created_us, revoked_us, last_used_us from api_keys \
                       where (created_us, id) < ($1, $2) order by created_us desc, id desc limit $3";
            tx.rows(sql, &params![time, id, limit], read_api_key)
        }
    }
}

/// Records when an API key was used. An earlier time than the recorded one changes nothing.
pub fn record_use(tx: &mut Tx<'_>, id: &ApiKeyId, at: Time) -> Result<()> {
    let sql = "update api_keys set last_used_us = $1 where id = $2 and coalesce(last_used_us, 0) < $1";
    tx.run(sql, &params![at, id])
}

/// Revokes an API key. A revoked key stays as it is.
pub fn revoke_key(tx: &mut Tx<'_>, id: &ApiKeyId) -> Result<()> {
    let sql = "update api_keys set revoked_us = $1 where id = $2 and revoked_us is null";
    let now = tx.now();
    tx.run(sql, &params![now, id])
}

/// Revokes every API key of a user.
pub fn revoke_keys_of(tx: &mut Tx<'_>, user: &UserId) -> Result<()> {
    let sql = "update api_keys set revoked_us = $1 where user_id = $2 and revoked_us is null";
    let now = tx.now();
    tx.run(sql, &params![now, user])
}

fn read_user(row: &mut Row) -> Result<User> {
    Ok(User {
        id: row.id()?,
        email: row.text()?,
        org: row.maybe_id()?,
        org_admin: row.flag()?,
        engine_admin: row.flag()?,
        disabled: row.flag()?,
        created: row.time()?,
    })
}

fn read_organization(row: &mut Row) -> Result<Organization> {
    Ok(Organization { id: row.id()?, name: row.text()?, created: row.time()? })
}

fn read_api_key(row: &mut Row) -> Result<ApiKey> {
    let (id, user, created) = (row.id()?, row.id()?, row.time()?);
    Ok(ApiKey { id, user, created, revoked: row.maybe_time()?, last_used: row.maybe_time()? })
}
