//! The master key in a backup: encrypted with a key that Argon2 derives from a passphrase.

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// The cost of one guess: memory in KiB, and passes over it.
const MEMORY_KIB: u32 = 64 << 10;
const PASSES: u32 = 3;

/// A shorter passphrase could be guessed.
const MIN_CHARS: usize = 12;

/// The encrypted key, as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedKey {
    kdf: String,
    memory_kib: u32,
    passes: u32,
    salt: String,
    sealed: String,
}

/// Encrypts the text of the master key.
pub(in crate::backup) fn seal(key: &str, passphrase: &str) -> Result<String> {
    if passphrase.chars().count() < MIN_CHARS {
        return Err(Failure(format!("the passphrase is too short: it needs at least {MIN_CHARS} characters")));
    }
    let mut salt = [0; 16];
    rand::rng().fill_bytes(&mut salt);
    let cipher = cipher(passphrase, &salt, MEMORY_KIB, PASSES)?;
    // The salt is new each time, and so the key: it encrypts only once.
    let sealed = cipher.encrypt(&Nonce::default(), key.as_bytes());
    let sealed = sealed.map_err(|_| Failure("the master key cannot be encrypted".to_owned()))?;
    let sealed = SealedKey {
        kdf: "argon2id".to_owned(),
        memory_kib: MEMORY_KIB,
        passes: PASSES,
        salt: hex::encode(salt),
        sealed: hex::encode(sealed),
    };
    serde_json::to_string_pretty(&sealed).map_err(|e| Failure::with_cause("cannot write the master key", e))
}

/// Decrypts the text of the master key.
pub(in crate::backup) fn open(text: &str, passphrase: &str) -> Result<String> {
    let damaged = || Failure("the encrypted master key of the backup is damaged".to_owned());
    let sealed: SealedKey = serde_json::from_str(text).map_err(|_| damaged())?;
    let (salt, bytes) = (hex::decode(&sealed.salt), hex::decode(&sealed.sealed));
    let (salt, bytes) = (salt.map_err(|_| damaged())?, bytes.map_err(|_| damaged())?);
    // The cost is what the file says; a file that asks for more memory than a host has is not ours.
    if sealed.kdf != "argon2id" || sealed.memory_kib > 4 << 20 || sealed.passes > 100 {
        return Err(damaged());
    }
    let cipher = cipher(passphrase, &salt, sealed.memory_kib, sealed.passes)?;
    let key = cipher.decrypt(&Nonce::default(), bytes.as_slice());
    let key = key.map_err(|_| Failure("the passphrase does not open the master key of the backup".to_owned()))?;
    String::from_utf8(key).map_err(|_| damaged())
}

fn cipher(passphrase: &str, salt: &[u8], memory_kib: u32, passes: u32) -> Result<ChaCha20Poly1305> {
    let failed = |e| Failure::with_cause("cannot derive a key from the passphrase", e);
    let params = Params::new(memory_kib, passes, 1, Some(32)).map_err(failed)?;
    let mut key = [0; 32];
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2.hash_password_into(passphrase.as_bytes(), salt, &mut key).map_err(failed)?;
    Ok(ChaCha20Poly1305::new(&Key::from(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the passphrase opens the key, and a changed file is refused.
    #[test]
    fn key_opens_with_its_passphrase_only() {
        let (key, passphrase) = ("0123456789abcdef", "correct horse battery");
        let sealed = seal(key, passphrase).unwrap();
        assert!(!sealed.contains(key));
        assert_ne!(sealed, seal(key, passphrase).unwrap(), "each backup has a salt of its own");
        assert_eq!(open(&sealed, passphrase).unwrap(), key);
        assert!(open(&sealed, "correct horse batterx").unwrap_err().to_string().contains("passphrase"));
        assert!(open(&sealed.replace("argon2id", "argon2i"), passphrase).is_err());
        assert!(open(&sealed[1..], passphrase).is_err());
        assert!(seal(key, "too short").is_err());
    }
}
