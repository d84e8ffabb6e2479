//! The traits that the user of this crate implements: which keys may log in, and what a connection leads to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use russh::keys::{HashAlg, PublicKey};
use tarn_link::Stream;

/// What a connection leads to. It is dialled once for every channel.
pub trait Target: Send + Sync + 'static {
    /// Opens a stream to the target. The text of an error is shown to the client.
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>>;

    /// Waits until the login is no longer allowed, and returns why. The connection is then ended, with that text.
    fn ended(&self) -> BoxFuture<'_, String> {
        Box::pin(std::future::pending())
    }
}

/// Decides which keys may log in.
pub trait Authorizer: Send + Sync + 'static {
    /// Is called for every key that a client offers, and again when the client has proven that it owns the key.
    fn authorize<'a>(&'a self, login: Login<'a>) -> BoxFuture<'a, Result<Arc<dyn Target>, Denied>>;

    /// Is called once for a connection that ended without a login after a key was refused.
    fn login_failed(&self, _from: SocketAddr) {}
}

/// An attempt to log in.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    pub user: &'a str,
    /// The offered key.
    pub key: &'a Key,
    /// The address of the client.
    pub from: SocketAddr,
    /// Whether the client has proven that it owns the key; if not, the key was only offered.
    pub proven: bool,
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key in OpenSSH format without a comment: its kind and its base64.
    pub line: String,
    /// The fingerprint in OpenSSH format: `SHA256:…`.
    pub fingerprint: String,
}

impl Key {
    /// Formats a key; `None` if it cannot be encoded.
    pub(crate) fn from_public_key(key: &PublicKey) -> Option<Key> {
        let bare = PublicKey::new(key.key_data().clone(), "");
        let line = bare.to_openssh().ok()?.trim_end().to_owned();
        Some(Key { line, fingerprint: key.fingerprint(HashAlg::Sha256).to_string() })
    }
}

/// The key may not log in. The client never learns why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;
