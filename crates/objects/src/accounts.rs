//! Accounts: who has object storage, and the keys that open it.
//!
//! The secret of an access key is kept nowhere: it follows from the master key and the id of the access key, so that a copy
//! of the database opens nothing. Who gets another access key has lost the old secret at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use tarn_model::Ids;
use tarn_model::ids::OrgId;
use tarn_store::Tx;
use tarn_store::accounts::{self, Account};

use crate::{Error, Objects, Result};

/// A key with its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The id, which says whose it is.
    pub access_key_id: String,
    /// The secret.
    pub secret_access_key: String,
}

/// Secrets stay out of logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Gives an organization object storage unless it has it, and says whether it is new.
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

/// The account of an organization that has one.
pub fn get(tx: &mut Tx<'_>, org: &OrgId) -> Result<Account> {
    match accounts::get(tx, org)? {
        Some(account) if !account.closing => Ok(account),
        Some(_) | None => Err(Error::NotEnabled),
    }
}

/// Replaces the access key; the old one opens nothing any more once [`Objects::forget_keys`] was called.
pub fn rotate(tx: &mut Tx<'_>, org: &OrgId) -> Result<Account> {
    get(tx, org)?;
    accounts::set_access_key(tx, org, &fresh_access_key(tx.ids()))?;
    get(tx, org)
}

/// Gives object storage up: the key opens nothing any more, and what there is will be removed. Refused while it holds
/// objects, unless that is what is wanted.
pub fn disable(tx: &mut Tx<'_>, org: &OrgId, force: bool) -> Result<()> {
    let account = get(tx, org)?;
    if account.objects > 0 && !force {
        return Err(Error::HoldsObjects(account.objects));
    }
    Ok(accounts::close(tx, org)?)
}

impl Objects {
    /// The key of an account with its secret.
    pub fn credentials(&self, account: &Account) -> Credentials {
        let access_key_id = account.access_key.clone();
        Credentials { secret_access_key: self.secret_of(&access_key_id), access_key_id }
    }

    /// To be called when keys were replaced or given up: from then on they are looked up again.
    pub fn forget_keys(&self) {
        self.remembered().forget();
    }

    /// Whose an access key is, if it is anybody's.
    pub async fn organization_of(&self, access_key: &str) -> Result<Option<OrgId>> {
        // Others may change the keys unseen where the database is shared.
        let alone = self.store().generation().is_some();
        if alone && let Some(org) = self.remembered().get(access_key) {
            return Ok(Some(org));
        }
        let turn = self.remembered().turn();
        let account = self.store().read(|tx| accounts::by_access_key(tx, access_key)).await;
        let org = account.map_err(|error: tarn_store::Error| error)?.map(|account| account.org);
        if let Some(org) = &org {
            self.remembered().put(access_key, org, turn);
        }
        Ok(org)
    }

    /// The secret that belongs to an access key.
    pub fn secret_of(&self, access_key: &str) -> String {
        let mut hasher = blake3::Hasher::new_keyed(self.secret());
        hasher.update(access_key.as_bytes());
        let mut bytes = [0; 40];
        hasher.finalize_xof().fill(&mut bytes);
        // 40 characters of 64, as clients expect: 240 bits.
        bytes.iter().map(|byte| char::from(SECRET_ALPHABET[usize::from(byte & 63)])).collect()
    }
}

const SECRET_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const KEY_ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// `TARN` and 16 characters of 32: as long as clients expect it.
fn fresh_access_key(ids: &dyn Ids) -> String {
    let bits = [ids.bits(), ids.bits()];
    let random = (0..16).map(|at| char::from(KEY_ALPHABET[(bits[at / 8] >> (at % 8 * 5) & 31) as usize]));
    "TARN".chars().chain(random).collect()
}

/// Access keys that were looked up. Every change of keys forgets them all.
#[derive(Default)]
pub(crate) struct Remembered(Mutex<(u64, HashMap<String, OrgId>)>);

impl Remembered {
    fn get(&self, access_key: &str) -> Option<OrgId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.get(access_key).cloned()
    }

    fn turn(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Remembers what was looked up, unless keys have changed since the look began.
    fn put(&self, access_key: &str, org: &OrgId, turn: u64) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.0 == turn {
            remembered.1.insert(access_key.to_owned(), org.clone());
        }
    }

    fn forget(&self) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.0 += 1;
        remembered.1.clear();
    }
}
