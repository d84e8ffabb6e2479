//! `Idempotency-Key`: the same call twice happens once and is answered the same.
//!
//! What came of a call is kept sealed with a key derived from the caller's secret: it may hold an API key that is shown
//! once, and the database alone must not be able to show it again.

use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tarn_model::ids::UserId;
use tarn_store::{Tx, idempotency};

use crate::{Error, Idempotency, Result};

/// How long the outcome of a call is kept.
pub(crate) const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Carries out `work`, unless it was carried out already under this key.
pub(crate) fn only<T, F>(tx: &mut Tx<'_>, user: &UserId, wish: &Idempotency, work: &F) -> Result<T>
where
    T: Serialize + DeserializeOwned,
    F: Fn(&mut Tx<'_>) -> Result<T>,
{
    let expired = tx.now().before(KEPT);
    if let Some(kept) = idempotency::get(tx, user, &wish.key, expired)? {
        if kept.fingerprint != wish.fingerprint {
            let message = "this Idempotency-Key was used for another call within the last 24 hours; choose a new one";
            return Err(Error::conflict("idempotency_key_reused", message));
        }
        return open(wish, &kept.outcome);
    }
    let result = work(tx)?;
    let outcome = seal(wish, tx.ids().bits(), &result)?;
    idempotency::save_outcome(
        tx,
        user,
        &wish.key,
        &idempotency::StoredOutcome { fingerprint: wish.fingerprint.to_vec(), outcome },
        expired,
    )?;
    Ok(result)
}

fn seal<T: Serialize>(wish: &Idempotency, chance: u64, result: &T) -> Result<Vec<u8>> {
    let plain = serde_json::to_vec(result).map_err(Error::internal)?;
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&chance.to_le_bytes());
    let sealed = cipher(wish).encrypt(Nonce::from_slice(&nonce), plain.as_slice()).map_err(|_| unreadable())?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn open<T: DeserializeOwned>(wish: &Idempotency, outcome: &[u8]) -> Result<T> {
    let (nonce, sealed) = outcome.split_at_checked(12).ok_or_else(unreadable)?;
    let plain = cipher(wish).decrypt(Nonce::from_slice(nonce), sealed).map_err(|_| unreadable())?;
    serde_json::from_slice(&plain).map_err(Error::internal)
}

fn cipher(wish: &Idempotency) -> ChaCha20Poly1305 {
    ChaCha20Poly1305::new(Key::from_slice(&wish.seal))
}

/// Another API key of the same user was used the first time: the call was carried out, but its answer is sealed.
fn unreadable() -> Error {
    let message = "this call was carried out with another API key, and only that key can read its answer again";
    Error::conflict("idempotency_other_key", message)
}
