//! How users prove that they hold the private half of a saved SSH key without a login: the engine gives a challenge,
//! and `ssh-keygen -Y sign` signs it.
//!
//! A challenge is not stored: its MAC, with a key that is derived from the master key, binds it to the engine, the
//! user, their organization and the key until it expires. A proof may be repeated; that changes nothing.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::events::{Event, SshKeyEvent};
use tarn_model::ids::SshKeyId;
use tarn_model::ssh_keys::SshKey;
use tarn_model::ssh_proofs::{self, NotAProof};
use tarn_store::{Tx, ssh_keys};

use crate::{Caller, Control, Error, Result};

/// How long a challenge is valid: a user may have to type a passphrase or touch a security key.
const LIFETIME: Duration = Duration::from_secs(300);

/// What a challenge begins with.
const PREFIX: &str = "tarn-prove";

/// What the holder of a key signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Exactly what is signed: one line of ASCII, without a line end.
    pub text: String,
    /// In whole seconds.
    pub expires: Time,
}

/// Returns a challenge for a saved key.
pub async fn challenge(control: &Control, caller: &Caller, key: &str) -> Result<Challenge> {
    let id: SshKeyId = key.parse()?;
    let key = control.store().read(|tx| find_saved(tx, caller, &id)).await?;
    let expires = control.clock().now().after(LIFETIME);
    let seconds = expires.as_micros() / 1_000_000;
    let mac = challenge_mac(control, caller, &key, seconds).to_hex();
    let expires = Time::from_micros(seconds * 1_000_000);
    Ok(Challenge { text: format!("{PREFIX} {id} {seconds} {mac}"), expires })
}

/// Checks the signature of a challenge, and records that the key is proven in the caller's organization. Returns a
/// message.
pub async fn prove(control: &Control, caller: &Caller, key: &str, challenge: &str, signature: &str) -> Result<String> {
    let id: SshKeyId = key.parse()?;
    let key = control.store().read(|tx| find_saved(tx, caller, &id)).await?;
    check_challenge(control, caller, &key, challenge)?;
    ssh_proofs::verify(&key.public_key, challenge, signature).map_err(|why| match why {
        NotAProof::Malformed | NotAProof::OtherNamespace | NotAProof::WeakHash => {
            Error::invalid("invalid_ssh_signature", why.to_string())
        }
        NotAProof::OtherKey | NotAProof::Mismatch | NotAProof::Unsupported => {
            Error::conflict("ssh_key_not_proven", why.to_string())
        }
    })?;
    let me = caller.clone();
    let write = control.write(caller, move |tx| {
        // Read again: it may have been removed since.
        let key = find_saved(tx, &me, &id)?;
        let scope = key.owner.scope();
        if ssh_keys::save_proof(tx, &key.fingerprint, scope)? {
            let proven = SshKeyEvent::Proven { fingerprint: key.fingerprint.clone() };
            tx.record(scope, Event::SshKey(id.clone(), proven))?;
        }
        Ok(format!(
            "SSH key {} ({}) is proven: the names of your clusters work with it, also while others have saved it.",
            key.name, key.id
        ))
    });
    write.await
}

/// Returns a key that the caller or their organization saved. It does not matter who of them: the signature proves it.
fn find_saved(tx: &mut Tx<'_>, caller: &Caller, id: &SshKeyId) -> Result<SshKey> {
    let key = ssh_keys::get(tx, id)?.ok_or_else(|| Error::not_found("SSH key", id.as_str()))?;
    caller.must_own(&key.owner, "SSH key", id.as_str())?;
    Ok(key)
}

/// Refuses a text that is not a challenge of this engine for this key of this user, or that has expired. The comparison
/// takes constant time.
fn check_challenge(control: &Control, caller: &Caller, key: &SshKey, challenge: &str) -> Result<()> {
    let refused = || {
        let message = "the challenge has expired, or is not one for this key; request a new one and sign it";
        Error::invalid("invalid_challenge", message)
    };
    let parts: Vec<&str> = challenge.splitn(5, ' ').collect();
    let [PREFIX, id, seconds, mac] = parts[..] else { return Err(refused()) };
    let (Ok(expires), Ok(mac)) = (seconds.parse::<i64>(), blake3::Hash::from_hex(mac)) else { return Err(refused()) };
    let now = control.clock().now().as_micros() / 1_000_000;
    if id != key.id.as_str() || mac != challenge_mac(control, caller, key, expires) || now >= expires {
        return Err(refused());
    }
    Ok(())
}

fn challenge_mac(control: &Control, caller: &Caller, key: &SshKey, expires: i64) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&control.secrets().ssh_challenge_key());
    let (id, user) = (key.id.as_str(), caller.user.id.as_str());
    for part in [id, user, key.owner.scope(), &key.fingerprint, &expires.to_string()] {
        // The length prefix separates adjacent parts.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize()
}
