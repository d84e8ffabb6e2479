//! Accounts: which organizations have object storage, and their access keys.
//!
//! The secret of an access key is stored nowhere. It is derived from the master key and the id of the access key, so
//! that a copy of the database opens nothing. A new access key invalidates the old secret at once.

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;
use tarn_model::Ids;
use tarn_model::ids::OrgId;
use tarn_store::Tx;
use tarn_store::accounts::{self, Account};

use crate::{Error, Objects, Result};

/// An access key with its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The id of the access key, which identifies the organization.
    pub access_key_id: String,
    pub secret_access_key: String,
}

/// Secrets stay out of logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Enables object storage for an organization. Returns whether the account is new.
pub fn enable(tx: &mut Tx<'_>, org: &OrgId) -> Result<(Account, bool)> {
    match accounts::get(tx, org)? {
        Some(account) if account.closing => Err(Error::Closing),
        Some(account) => Ok((account, false)),
        None => {
            accounts::insert(tx, org, &fresh_access_key(tx.ids()))?;
            Ok((get(tx, org)?, true))
        }
    }
}

/// Returns the open account of an organization.
pub fn get(tx: &mut Tx<'_>, org: &OrgId) -> Result<Account> {
    match accounts::get(tx, org)? {
        Some(account) if !account.closing => Ok(account),
        Some(_) | None => Err(Error::NotEnabled),
    }
}

/// Replaces the access key. The old key stays valid until [`Objects::forget_keys`] is called.
pub fn rotate(tx: &mut Tx<'_>, org: &OrgId) -> Result<Account> {
    get(tx, org)?;
    accounts::set_access_key(tx, org, &fresh_access_key(tx.ids()))?;
    get(tx, org)
}

/// Disables object storage: the key becomes invalid, and the content will be removed. Refused while it holds objects,
/// unless `force` is set.
pub fn disable(tx: &mut Tx<'_>, org: &OrgId, force: bool) -> Result<()> {
    let account = get(tx, org)?;
    if account.objects > 0 && !force {
        return Err(Error::HoldsObjects(account.objects));
    }
    Ok(accounts::close(tx, org)?)
}

impl Objects {
    /// Returns the access key of an account with its secret.
    pub fn credentials(&self, account: &Account) -> Credentials {
        let access_key_id = account.access_key.clone();
        Credentials { secret_access_key: self.secret_of(&access_key_id), access_key_id }
    }

    /// Clears the cache of access keys. Must be called when keys were replaced or disabled.
    pub fn forget_keys(&self) {
        self.access_keys().clear();
    }

    /// Returns the organization of an access key, if the key is valid.
    pub async fn organization_of(&self, access_key: &str) -> Result<Option<OrgId>> {
        // Where the database is shared, another replica may change the keys, so the cache is not used.
        let alone = self.store().generation().is_some();
        if alone && let Some(org) = self.access_keys().get(access_key) {
            return Ok(Some(org));
        }
        let epoch = self.access_keys().epoch();
        let account = self.store().read(|tx| accounts::by_access_key(tx, access_key)).await;
        let org = account.map_err(|error: tarn_store::Error| error)?.map(|account| account.org);
        if let Some(org) = &org {
            self.access_keys().put(access_key, org, epoch);
        }
        Ok(org)
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

const KEY_ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// `TARN` and 16 characters of 32: the length that clients expect.
fn fresh_access_key(ids: &dyn Ids) -> String {
    let bits = [ids.bits(), ids.bits()];
    let random = (0..16).map(|at| char::from(KEY_ALPHABET[(bits[at / 8] >> (at % 8 * 5) & 31) as usize]));
    "TARN".chars().chain(random).collect()
}

/// A cache of access keys. Every change of keys clears it.
#[derive(Default)]
pub(crate) struct AccessKeyCache(Mutex<(u64, HashMap<String, OrgId>)>);

impl AccessKeyCache {
    fn get(&self, access_key: &str) -> Option<OrgId> {
        self.0.lock().1.get(access_key).cloned()
    }

    fn epoch(&self) -> u64 {
        self.0.lock().0
    }

    /// Adds a key, unless keys have changed since its lookup started.
    fn put(&self, access_key: &str, org: &OrgId, epoch: u64) {
        let mut cache = self.0.lock();
        if cache.0 == epoch {
            cache.1.insert(access_key.to_owned(), org.clone());
        }
    }

    fn clear(&self) {
        let mut cache = self.0.lock();
        cache.0 += 1;
        cache.1.clear();
    }
}
