//! Connections to engines and to whoever keeps files for them.

use std::time::Duration;

use crate::addresses;
use crate::failure::{Failure, Result};

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(10);

/// Whether there is a certificate to be verified.
pub(crate) fn is_encrypted(url: &str) -> bool {
    url.starts_with("https:")
}

/// Who connects to an address.
pub(crate) fn client_for(url: &str) -> Result<reqwest::Client> {
    // Whoever was first has chosen the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = reqwest::Client::builder()
        .user_agent(concat!("tarn/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECTING)
        // A redirect would carry the key elsewhere.
        .redirect(reqwest::redirect::Policy::none());
    if !is_encrypted(url) {
        // Reading all certificates of the system takes longer than a whole call.
        client = client.tls_certs_only([]);
    }
    if addresses::is_here(url) {
        // Whoever forwards what goes out is not asked about what stays on this machine.
        client = client.no_proxy();
    }
    client.build().map_err(|e| Failure::doing("the client cannot be made", reason(&e)))
}

/// As much of an answer as is wanted; what is longer is cut off, and then seldom understood.
pub(crate) async fn read(mut answer: reqwest::Response, limit: usize) -> reqwest::Result<Vec<u8>> {
    let mut text = Vec::new();
    while text.len() < limit
        && let Some(piece) = answer.chunk().await?
    {
        text.extend_from_slice(&piece);
    }
    Ok(text)
}

/// The innermost cause, which says most in the fewest words.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
