//! The address by which a client reaches the engine, for URLs in responses.

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use axum::http::uri::Authority;

use crate::App;
use crate::http::output::failure::Failure;

/// The base URL of the engine: the configured one, or else the one that the client used. URLs that begin with it work
/// for the client.
pub(crate) struct Address(pub(crate) String);

impl FromRequestParts<App> for Address {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let front = &app.shared.front;
        if let Some(url) = &front.public_url {
            return Ok(Address(url.trim_end_matches('/').to_owned()));
        }
        let scheme = if front.tls { "https" } else { "http" };
        let named = parts.headers.get(header::HOST).map_or(Some(""), |host| host.to_str().ok());
        let named = named.filter(|host| !host.is_empty()).or_else(|| parts.uri.authority().map(Authority::as_str));
        // A user name before the host would become part of the URLs.
        let sound = named.and_then(|host| host.parse::<Authority>().ok()).filter(|host| !host.as_str().contains('@'));
        let host = sound.ok_or_else(|| {
            Failure::invalid("invalid_host", "the Host header must be the address of this engine, such as 'host:port'")
        })?;
        Ok(Address(format!("{scheme}://{host}")))
    }
}
