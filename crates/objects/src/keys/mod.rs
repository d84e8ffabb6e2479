//! Access keys. Each belongs to a user, and works while the user is in the organization and not disabled.
//!
//! The secret of an access key is stored nowhere. It is derived from the master key and the id of the access key, so
//! that a copy of the database opens nothing.

mod cache;

use std::fmt;
use std::time::Duration;

use tarn_model::Time;
use tarn_model::ids::{OrgId, UserId};
use tarn_model::s3_keys::{self as rules, S3Key};
use tarn_store::s3_keys::{self as rows, KeyHolder};
use tarn_store::{Tx, accounts as account_rows};

use crate::{Objects, Result, accounts};

pub(crate) use cache::AccessKeyCache;

/// The name of a key that was created because its user had none.
const DEFAULT_NAME: &str = "default";

/// An access key with its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The id of the access key, which identifies the user and the organization.
    pub access_key_id: String,
    pub secret_access_key: String,
}

/// Secrets stay out of logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Returns the keys of a user that work, newest first.
pub fn working(tx: &mut Tx<'_>, user: &UserId, org: &OrgId) -> Result<Vec<S3Key>> {
    let (mut keys, now) = (rows::of_user(tx, user, org)?, tx.now());
    keys.retain(|key| key.works_at(now));
    Ok(keys)
}

/// Returns the key that a user is meant to use: the newest that was not replaced.
pub fn current(working: &[S3Key]) -> Option<&S3Key> {
    working.iter().find(|key| key.ends.is_none())
}

/// Returns the current key of a user, and creates it if there is none. Returns whether it is new.
pub fn ensure(tx: &mut Tx<'_>, user: &UserId, org: &OrgId) -> Result<(S3Key, bool)> {
    accounts::get(tx, org)?;
    match current(&working(tx, user, org)?) {
        Some(key) => Ok((key.clone(), false)),
        None => Ok((create(tx, user, org, DEFAULT_NAME)?, true)),
    }
}

/// Creates a key. Refused when the user has two that work.
pub fn create(tx: &mut Tx<'_>, user: &UserId, org: &OrgId, name: &str) -> Result<S3Key> {
    accounts::get(tx, org)?;
    rules::check_limit(working(tx, user, org)?.len())?;
    insert(tx, user, org, name)
}

/// Creates a key that replaces all keys of the user. They end at once, unless the only one is kept for a while. Returns
/// the new key, and those that it replaces.
pub fn rotate(tx: &mut Tx<'_>, user: &UserId, org: &OrgId, keep: Option<Duration>) -> Result<(S3Key, Vec<S3Key>)> {
    accounts::get(tx, org)?;
    let (mut replaced, now) = (working(tx, user, org)?, tx.now());
    let end = rules::end_of_replaced(replaced.len(), keep, now)?;
    for key in &mut replaced {
        // A key that ends sooner is not prolonged.
        let end = key.ends.map_or(end, |ends| ends.min(end));
        if end <= now {
            rows::revoke(tx, &key.id)?;
        } else {
            rows::set_end(tx, &key.id, end)?;
        }
        key.ends = Some(end);
    }
    let name = replaced.first().map_or(DEFAULT_NAME, |key| key.name.as_str());
    Ok((insert(tx, user, org, name)?, replaced))
}

/// Ends a key at once. Returns whether it worked until now.
pub fn revoke(tx: &mut Tx<'_>, key: &S3Key) -> Result<bool> {
    // Also a key that has ended here: the clock of another replica may be behind.
    rows::revoke(tx, &key.id)?;
    Ok(key.works_at(tx.now()))
}

fn insert(tx: &mut Tx<'_>, user: &UserId, org: &OrgId, name: &str) -> Result<S3Key> {
    let (id, now) = (rules::fresh_id(tx.ids()), tx.now());
    let ended = rows::of_user(tx, user, org)?.into_iter().filter(|key| !key.works_at(now));
    for forgotten in ended.skip(rules::MAX_ENDED) {
        rows::remove(tx, &forgotten.id)?;
    }
    let (user, org, name) = (user.clone(), org.clone(), name.to_owned());
    let key = S3Key { id, user, org, name, created: now, last_used: None, ends: None, revoked: false };
    rows::insert(tx, &key)?;
    Ok(key)
}

impl Objects {
    /// Returns an access key with its secret.
    pub fn credentials(&self, access_key: &str) -> Credentials {
        Credentials { access_key_id: access_key.to_owned(), secret_access_key: self.secret_of(access_key) }
    }

    /// Clears the cache of access keys. Must be called after every change that may end a key: of the key, of its user
    /// or of the account.
    pub fn forget_keys(&self) {
        self.access_keys().clear();
    }

    /// Returns the holder of an access key, if the key works now.
    pub async fn holder_of(&self, access_key: &str) -> Result<Option<KeyHolder>> {
        let now = self.clock().now();
        // Where the database is shared, another replica may change the keys, so the cache is not used.
        let alone = self.store().generation().is_some();
        if alone && let Some(holder) = self.access_keys().get(access_key, now) {
            return Ok(Some(holder).filter(|holder| self.works_at(holder, now)));
        }
        let epoch = self.access_keys().epoch();
        let holder = self.store().read(|tx| rows::holder(tx, access_key)).await;
        let holder = holder.map_err(|error: tarn_store::Error| error)?;
        if alone && let Some(holder) = &holder {
            self.access_keys().put(access_key, holder, now, epoch);
        }
        Ok(holder.filter(|holder| self.works_at(holder, now)))
    }

    /// Returns the legacy key of an account, if it works.
    pub fn legacy_key(&self, tx: &mut Tx<'_>, org: &OrgId) -> Result<Option<String>> {
        let account = account_rows::get(tx, org)?.filter(|account| !account.closing);
        let works = !self.have_legacy_keys_ended(tx.now());
        Ok(account.and_then(|account| account.legacy_key).filter(|_| works))
    }

    /// Returns when legacy keys stop working, if the configuration says so.
    pub fn legacy_keys_until(&self) -> Option<Time> {
        self.settings().legacy_keys_until
    }

    /// A key may end while it is in the cache.
    pub(crate) fn works_at(&self, holder: &KeyHolder, now: Time) -> bool {
        let is_ended_legacy = holder.user.is_none() && self.have_legacy_keys_ended(now);
        holder.ends.is_none_or(|ends| ends > now) && !is_ended_legacy
    }

    fn have_legacy_keys_ended(&self, now: Time) -> bool {
        self.legacy_keys_until().is_some_and(|until| until <= now)
    }

    /// Returns the secret of an access key.
    pub fn secret_of(&self, access_key: &str) -> String {
        let mut hasher = blake3::Hasher::new_keyed(self.secret());
        hasher.update(access_key.as_bytes());
        let mut bytes = [0; 40];
        hasher.finalize_xof().fill(&mut bytes);
        // 40 characters of 64, the length that clients expect: 240 bits.
        bytes.iter().map(|byte| char::from(SECRET_ALPHABET[usize::from(byte & 63)])).collect()
    }
}

const SECRET_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
