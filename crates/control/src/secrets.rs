//! The master key and the keys derived from it. Derived keys are not stored: the same master key and the same id give
//! the same key, in every replica and after every restart.

use std::fmt;

use ed25519_dalek::SigningKey;
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey, PrivateKey};
use ssh_key::public::Ed25519PublicKey;
use tarn_model::ids::{ClusterId, InstanceId};

/// All secrets of the engine.
#[derive(Clone)]
pub struct Secrets {
    master: [u8; 32],
}

/// An SSH key pair.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// The private key, in the format of OpenSSH.
    pub private_key: String,
    /// The public key, as one OpenSSH line without a comment.
    pub public_key: String,
}

impl Secrets {
    /// The secrets that are derived from this master key.
    pub fn new(master: [u8; 32]) -> Self {
        Secrets { master }
    }

    /// Identifies the master key. It reveals nothing about the key and may be stored.
    pub fn fingerprint(&self) -> String {
        hex::encode(self.derive("tarn 2026 fingerprint of the master key", ""))
    }

    /// The host key of the SSH gateway.
    pub fn gateway_host_key(&self) -> KeyPair {
        self.key_pair("tarn 2026 ssh host key of the gateway", "")
    }

    /// The host key of an instance.
    pub fn instance_host_key(&self, instance: &InstanceId) -> KeyPair {
        self.key_pair("tarn 2026 ssh host key of an instance", instance.as_str())
    }

    /// The key with which the nodes of a cluster log in to each other.
    pub fn cluster_peer_key(&self, cluster: &ClusterId) -> KeyPair {
        self.key_pair("tarn 2026 ssh key between the nodes of a cluster", cluster.as_str())
    }

    /// The key from which the secrets of all access keys of object storage are derived.
    pub fn object_storage_key(&self) -> [u8; 32] {
        self.derive("tarn 2026 secrets of access keys of object storage", "")
    }

    /// The key that signs the URLs through which the files of jobs are transferred.
    pub(crate) fn job_url_key(&self) -> [u8; 32] {
        self.derive("tarn 2026 signatures of the URLs of jobs", "")
    }

    /// The key that signs the challenges with which users prove their SSH keys.
    pub(crate) fn ssh_challenge_key(&self) -> [u8; 32] {
        self.derive("tarn 2026 challenges for the holders of SSH keys", "")
    }

    fn derive(&self, context: &str, id: &str) -> [u8; 32] {
        *blake3::Hasher::new_derive_key(context).update(&self.master).update(id.as_bytes()).finalize().as_bytes()
    }

    fn key_pair(&self, context: &str, id: &str) -> KeyPair {
        let seed = self.derive(context, id);
        let public = Ed25519PublicKey(SigningKey::from_bytes(&seed).verifying_key().to_bytes());
        let key = PrivateKey::from(Ed25519Keypair { public, private: Ed25519PrivateKey::from_bytes(&seed) });
        let private_key = key.to_openssh(ssh_key::LineEnding::LF).expect("an ed25519 key can be encoded");
        let public_key = key.public_key().to_openssh().expect("an ed25519 key can be encoded");
        KeyPair { private_key: private_key.to_string(), public_key: public_key.trim_end().to_owned() }
    }
}

/// Keeps secrets out of logs.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

/// Keeps secrets out of logs.
impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("public_key", &self.public_key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_derived_from_master_key_and_id() {
        let (secrets, again, others) = (Secrets::new([7; 32]), Secrets::new([7; 32]), Secrets::new([8; 32]));
        let ids = ["i-000000000001", "i-000000000002"].map(|id| id.parse::<InstanceId>().unwrap());
        let cluster: ClusterId = "c-000000000001".parse().unwrap();
        assert_eq!(secrets.instance_host_key(&ids[0]), again.instance_host_key(&ids[0]));
        let all = [
            secrets.gateway_host_key(),
            secrets.instance_host_key(&ids[0]),
            secrets.instance_host_key(&ids[1]),
            secrets.cluster_peer_key(&cluster),
            others.gateway_host_key(),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other.private_key != one.private_key), "{one:?}");
        }
        assert_eq!(secrets.object_storage_key(), again.object_storage_key());
        assert_ne!(secrets.object_storage_key(), others.object_storage_key());
        assert_eq!(secrets.fingerprint(), again.fingerprint());
        assert_ne!(secrets.fingerprint(), others.fingerprint());
    }

    #[test]
    fn key_pair_is_valid_openssh() {
        let KeyPair { private_key, public_key } = Secrets::new([7; 32]).gateway_host_key();
        let read = PrivateKey::from_openssh(&private_key).unwrap();
        assert_eq!(read.public_key().to_openssh().unwrap().trim_end(), public_key);
        assert!(public_key.starts_with("ssh-ed25519 AAAA"), "{public_key}");
    }

    #[test]
    fn debug_output_hides_secrets() {
        let secrets = Secrets::new([7; 32]);
        let key = secrets.gateway_host_key();
        let shown = format!("{secrets:?} {key:?}");
        assert!(!shown.contains("PRIVATE") && !shown.contains("7, 7"), "{shown}");
    }
}
