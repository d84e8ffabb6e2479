//! Who may come in, and what is behind the door. Both are decided by the user of this crate.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use russh::keys::{HashAlg, PublicKey};
use tarn_link::Stream;

/// What a visitor is connected with: it can be dialled as often as he opens channels.
pub trait Target: Send + Sync + 'static {
    /// Opens a stream to it. The words of an error are shown to the visitor.
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>>;
}

/// Decides who comes in.
pub trait Authorizer: Send + Sync + 'static {
    /// Asked for every key that a client offers, and once more when it has proven that the key is its own.
    fn enter<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Result<Arc<dyn Target>, Denied>>;
}

/// Somebody at the door.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// The user name that he gave.
    pub user: &'a str,
    /// The key that he has, or says he has.
    pub key: &'a Key,
    /// Where he comes from.
    pub from: SocketAddr,
    /// Whether he has proven that the key is his: this is a login. Otherwise the key was only offered.
    pub proven: bool,
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key as OpenSSH writes it, without a comment: its kind and its base64.
    pub line: String,
    /// Its fingerprint, as OpenSSH writes it: `SHA256:…`.
    pub fingerprint: String,
}

impl Key {
    /// Writes a key down; `None` for one that cannot be written.
    pub(crate) fn of(key: &PublicKey) -> Option<Key> {
        let bare = PublicKey::new(key.key_data().clone(), "");
        let line = bare.to_openssh().ok()?.trim_end().to_owned();
        Some(Key { line, fingerprint: key.fingerprint(HashAlg::Sha256).to_string() })
    }
}

/// The key opens nothing here. A visitor is never told why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;
