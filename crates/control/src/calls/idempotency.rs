//! `Idempotency-Key`: a repeated call takes effect once and returns the same response.
//!
//! The outcome of a call is stored encrypted with a key derived from the caller's secret. It may contain an API key
//! that is shown only once, and the database alone must not reveal it.

use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tarn_model::users::Owner;
use tarn_store::{Tx, idempotency, usage};

use crate::{Error, Idempotency, Result};

/// How long the outcome of a call is kept.
pub(crate) const OUTCOME_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// How many outcomes are kept for an organization, or for a user without one.
const MAX_OUTCOMES: u64 = 10_000;

const NONCE_BYTES: usize = 12;

/// Runs `work`, unless it has already run under this key; then returns its stored outcome.
pub(crate) fn run_once<T, F>(tx: &mut Tx<'_>, owner: &Owner, call: &Idempotency, work: &F) -> Result<T>
where
    T: Serialize + DeserializeOwned,
    F: Fn(&mut Tx<'_>) -> Result<T>,
{
    let expired = tx.now().before(OUTCOME_RETENTION);
    if let Some(kept) = idempotency::get(tx, &owner.user, &call.key, expired)? {
        if kept.fingerprint != call.fingerprint {
            let message = "this Idempotency-Key was used for another call within the last 24 hours; choose a new one";
            return Err(Error::conflict("idempotency_key_reused", message));
        }
        return unseal_outcome(call, &kept.outcome);
    }
    if usage::outcomes(tx, owner.scope())? >= MAX_OUTCOMES {
        let message = format!(
            "{} sent {MAX_OUTCOMES} calls with an Idempotency-Key within the last 24 hours, which is the limit; send \
             this one without a key, or wait",
            if owner.org.is_some() { "your organization has" } else { "you have" }
        );
        return Err(Error::conflict("limit_reached", message));
    }
    let result = work(tx)?;
    let outcome = seal_outcome(call, tx.ids().bits(), &result)?;
    idempotency::save_outcome(
        tx,
        owner,
        &call.key,
        &idempotency::StoredOutcome { fingerprint: call.fingerprint.to_vec(), outcome },
        expired,
    )?;
    Ok(result)
}

fn seal_outcome<T: Serialize>(call: &Idempotency, chance: u64, result: &T) -> Result<Vec<u8>> {
    let plain = serde_json::to_vec(result).map_err(Error::internal)?;
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(&chance.to_le_bytes());
    let sealed =
        outcome_cipher(call).encrypt(&Nonce::from(nonce), plain.as_slice()).map_err(|_| sealed_with_other_key())?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn unseal_outcome<T: DeserializeOwned>(call: &Idempotency, outcome: &[u8]) -> Result<T> {
    let (nonce, sealed) = outcome.split_first_chunk::<NONCE_BYTES>().ok_or_else(sealed_with_other_key)?;
    let plain = outcome_cipher(call).decrypt(&Nonce::from(*nonce), sealed).map_err(|_| sealed_with_other_key())?;
    serde_json::from_slice(&plain).map_err(Error::internal)
}

fn outcome_cipher(call: &Idempotency) -> ChaCha20Poly1305 {
    ChaCha20Poly1305::new(&Key::from(call.seal))
}

/// The first call used another API key of the same user: it took effect, but its response is encrypted with that key.
fn sealed_with_other_key() -> Error {
    let message = "this call was carried out with another API key, and only that key can read its response again";
    Error::conflict("idempotency_other_key", message)
}
