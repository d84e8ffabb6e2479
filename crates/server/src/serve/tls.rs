//! The TLS configuration of listeners, which can be replaced while they serve.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;

/// The TLS configuration of new connections. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl Tls {
    /// Creates the configuration of one or more listeners.
    pub fn new(config: ServerConfig) -> Tls {
        Tls(Arc::new(RwLock::new(only_http1(config))))
    }

    /// Replaces the configuration, for example with another certificate. Open connections keep the old one.
    pub fn replace(&self, config: ServerConfig) {
        *self.0.write() = only_http1(config);
    }

    /// The configuration of new connections.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.0.read().clone()
    }
}

/// Only HTTP/1 is supported, so only HTTP/1 is offered.
fn only_http1(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Keeps the private key out of logs.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
