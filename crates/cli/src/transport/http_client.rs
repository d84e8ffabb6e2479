//! The HTTP client for engines and for the servers that keep files for them.

use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::transport::addresses;

/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a URL uses HTTPS.
pub(crate) fn is_https(url: &str) -> bool {
    url.starts_with("https:")
}

/// Builds the HTTP client for a URL.
pub(crate) fn build_client(url: &str) -> Result<reqwest::Client> {
    // An error means that the same provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = reqwest::Client::builder()
        .user_agent(concat!("tarn/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect would send the API key to another server.
        .redirect(reqwest::redirect::Policy::none());
    if !is_https(url) {
        // Loading the system's certificates takes longer than a whole call.
        client = client.tls_certs_only([]);
    }
    if addresses::is_loopback_url(url) {
        // A proxy is not used for connections to this host.
        client = client.no_proxy();
    }
    client.build().map_err(|e| Failure::with_cause("cannot create the HTTP client", innermost_cause(&e)))
}

/// Reads a response up to about `limit` bytes, and cuts off the rest.
pub(crate) async fn read_limited(mut response: reqwest::Response, limit: usize) -> reqwest::Result<Vec<u8>> {
    let mut text = Vec::new();
    while text.len() < limit
        && let Some(piece) = response.chunk().await?
    {
        text.extend_from_slice(&piece);
    }
    Ok(text)
}

/// The innermost cause of an error, which is the shortest useful message.
pub(crate) fn innermost_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
