//! The settings of the server: its host key, its limits, and the algorithms that it offers.

use std::borrow::Cow;
use std::time::Duration;

use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKey};
use russh::{MethodKind, MethodSet, Preferred, SshId, cipher, compression, kex, mac, server};

/// The settings of an SSH server.
#[derive(Clone)]
pub struct Settings {
    host_key: PrivateKey,
    pub limits: Limits,
}

/// Keeps the host key out of logs.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The text is not a usable private key.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("the host key is not an unencrypted private key in OpenSSH's format: {0}")]
pub struct InvalidHostKey(String);

/// The limits of an SSH server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent connections.
    pub connections: usize,
    /// Concurrent connections from one address (for IPv6: one /64 network).
    pub connections_per_address: usize,
    /// Concurrent connections that have not logged in yet.
    pub starting: usize,
    /// Concurrent connections from one address that have not logged in yet.
    pub starting_per_address: usize,
    /// Failed logins from one address before further connections are refused; one is forgiven every two seconds.
    pub failures_per_address: u32,
    /// Concurrent channels of one connection.
    pub channels: usize,
    /// Bytes that a client may send ahead of the target on one channel.
    pub window: u32,
    /// Bytes that all channels of a connection may buffer together.
    pub held_per_connection: usize,
    /// How long a login may take.
    pub grace: Duration,
    /// Keys that a client may try.
    pub attempts: usize,
    /// How long a refusal is delayed.
    pub refusal: Duration,
    /// How long a client may be silent before a keepalive is sent.
    pub keepalive: Duration,
    /// How many keepalives may remain unanswered.
    pub keepalive_missed: usize,
    /// The idle timeout; `None` for no limit.
    pub idle: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 512,
            connections_per_address: 128,
            starting: 128,
            starting_per_address: 64,
            failures_per_address: 30,
            channels: 256,
            window: 4 << 20,
            held_per_connection: 8 << 20,
            grace: Duration::from_secs(30),
            attempts: 6,
            refusal: Duration::from_millis(500),
            keepalive: Duration::from_secs(30),
            keepalive_missed: 4,
            idle: None,
        }
    }
}

impl Settings {
    /// Creates settings with a host key (OpenSSH private key format) and the default limits.
    pub fn new(host_key: &str) -> Result<Settings, InvalidHostKey> {
        let host_key = PrivateKey::from_openssh(host_key).map_err(|e| InvalidHostKey(e.to_string()))?;
        if host_key.is_encrypted() {
            return Err(InvalidHostKey("it is protected by a passphrase".into()));
        }
        Ok(Settings { host_key, limits: Limits::default() })
    }

    /// Builds the configuration of the SSH library.
    pub(crate) fn config(&self) -> server::Config {
        let mut methods = MethodSet::empty();
        methods.push(MethodKind::PublicKey);
        server::Config {
            server_id: SshId::Standard(Cow::Borrowed("SSH-2.0-Tarn")),
            methods,
            auth_rejection_time: self.limits.refusal,
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys: vec![self.host_key.clone()],
            window_size: self.limits.window,
            maximum_packet_size: 32 << 10,
            // The handler takes the input, so a full buffer in the library can never block the connection.
            channel_buffer_size: 1,
            event_buffer_size: 64,
            preferred: preferred(),
            // The client's initial query for the methods counts as an attempt.
            max_auth_attempts: self.limits.attempts + 1,
            inactivity_timeout: self.limits.idle,
            keepalive_interval: Some(self.limits.keepalive),
            keepalive_max: self.limits.keepalive_missed,
            nodelay: true,
            ..server::Config::default()
        }
    }
}

/// The client's preference decides, so slow algorithms are not offered at all: only ciphers with hardware support, key
/// exchanges that take well under a millisecond, and no compression. Most clients prefer AES-CTR with a MAC to AES-GCM,
/// which is faster and supported by all clients of the last ten years; so AES-CTR is left out.
fn preferred() -> Preferred {
    const KEY_EXCHANGES: &[kex::Name] = &[
        kex::MLKEM768X25519_SHA256,
        kex::CURVE25519,
        kex::CURVE25519_PRE_RFC_8731,
        kex::ECDH_SHA2_NISTP256,
        kex::EXTENSION_SUPPORT_AS_SERVER,
        kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
    ];
    const CIPHERS: &[cipher::Name] = &[cipher::AES_128_GCM, cipher::AES_256_GCM];
    const MACS: &[mac::Name] = &[mac::HMAC_SHA256_ETM, mac::HMAC_SHA512_ETM, mac::HMAC_SHA256];
    const KEYS: &[Algorithm] = &[
        Algorithm::Ed25519,
        Algorithm::SkEd25519,
        Algorithm::SkEcdsaSha2NistP256,
        Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
        Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
        Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
        Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
        Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
    ];
    Preferred {
        kex: Cow::Borrowed(KEY_EXCHANGES),
        key: Cow::Borrowed(KEYS),
        cipher: Cow::Borrowed(CIPHERS),
        mac: Cow::Borrowed(MACS),
        compression: Cow::Borrowed(&[compression::NONE]),
        ..Preferred::DEFAULT
    }
}
