//! Proofs that a user holds the private half of an SSH key: a signature that `ssh-keygen -Y sign` made of a challenge.

use ssh_key::public::KeyData;
use ssh_key::{Algorithm, PublicKey, SshSig};

/// The namespace of the signatures. It keeps a signature that was made for something else from being a proof, and a
/// proof from being anything else.
pub const NAMESPACE: &str = "tarn-prove";

/// The longest signature that is parsed; that of an RSA key of 16,384 bits has about 6,000 characters.
pub const MAX_LENGTH: usize = 16_384;

/// The largest RSA key whose signatures can be checked.
const MAX_RSA_BITS: u32 = 8192;

/// Why a signature proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAProof {
    #[error("not an SSH signature: give what `ssh-keygen -Y sign -f KEY -n {NAMESPACE}` writes")]
    Malformed,
    #[error("the signature was made for something else: sign with `ssh-keygen -Y sign -f KEY -n {NAMESPACE}`")]
    OtherNamespace,
    #[error("the signature uses SHA-1, which proves nothing; sign with a newer OpenSSH")]
    WeakHash,
    #[error("another key made the signature; sign with the private key of the saved key")]
    OtherKey,
    #[error("the signature is not one of this challenge by this key; request a challenge and sign exactly its text")]
    Mismatch,
    #[error("signatures of such a key cannot be checked; log in once by the id of your cluster instead")]
    Unsupported,
}

/// Checks that the private half of a public key signed the challenge. Everything but the public key is untrusted.
pub fn verify(public_key: &str, challenge: &str, signature: &str) -> Result<(), NotAProof> {
    if signature.len() > MAX_LENGTH {
        return Err(NotAProof::Malformed);
    }
    let key = PublicKey::from_openssh(public_key).map_err(|_| NotAProof::Malformed)?;
    let signature = SshSig::from_pem(signature.trim()).map_err(|_| NotAProof::Malformed)?;
    if signature.version() != SshSig::VERSION {
        return Err(NotAProof::Malformed);
    }
    if signature.namespace() != NAMESPACE {
        return Err(NotAProof::OtherNamespace);
    }
    if matches!(signature.algorithm(), Algorithm::Rsa { hash: None }) {
        return Err(NotAProof::WeakHash);
    }
    if signature.public_key() != key.key_data() {
        return Err(NotAProof::OtherKey);
    }
    if !is_supported(&key) {
        return Err(NotAProof::Unsupported);
    }
    key.verify(NAMESPACE, challenge.as_bytes(), &signature).map_err(|_| NotAProof::Mismatch)
}

fn is_supported(key: &PublicKey) -> bool {
    if let KeyData::Rsa(rsa) = key.key_data() {
        return rsa.key_size() <= MAX_RSA_BITS;
    }
    !matches!(key.algorithm(), Algorithm::Dsa | Algorithm::Other(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by OpenSSH: `printf %s challenge | ssh-keygen -Y sign -f KEY -n NAMESPACE`.
    macro_rules! fixture {
        ($name:literal) => {
            include_str!(concat!("fixtures/", $name))
        };
    }

    #[test]
    fn signatures_of_openssh_are_proofs() {
        for (kind, key, signature) in [
            ("ed25519", fixture!("ed25519.pub"), fixture!("ed25519.sig")),
            ("ecdsa 256", fixture!("ecdsa256.pub"), fixture!("ecdsa256.sig")),
            ("ecdsa 384", fixture!("ecdsa384.pub"), fixture!("ecdsa384.sig")),
            ("ecdsa 521", fixture!("ecdsa521.pub"), fixture!("ecdsa521.sig")),
            ("rsa", fixture!("rsa.pub"), fixture!("rsa.sig")),
        ] {
            assert_eq!(verify(key, "challenge", signature), Ok(()), "{kind}");
            assert_eq!(verify(key, "another", signature), Err(NotAProof::Mismatch), "{kind}");
            assert_eq!(verify(fixture!("other.pub"), "challenge", signature), Err(NotAProof::OtherKey), "{kind}");
        }
    }

    #[test]
    fn other_signatures_are_refused() {
        let (key, good) = (fixture!("ed25519.pub"), fixture!("ed25519.sig"));
        assert_eq!(verify(key, "challenge", fixture!("namespace.sig")), Err(NotAProof::OtherNamespace));
        let long = format!("{good}{}", "\n".repeat(MAX_LENGTH));
        let cut = good.replacen("U1NIU0lH", "", 1);
        for text in ["", "hello", "-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----", &long, &cut, key, "é\0"]
        {
            assert_eq!(verify(key, "challenge", text), Err(NotAProof::Malformed), "{text:?}");
        }
        assert_eq!(verify(key, "challenge", fixture!("sha1.sig")), Err(NotAProof::WeakHash));
        // Any changed bit ends it, without a panic.
        for at in 0..good.len() {
            let mut bytes = good.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(verify(key, "challenge", &changed).is_err() || changed.trim() == good.trim(), "{at}");
        }
    }
}
