//! The address by which callers reach the engine, for the URLs that answers carry.

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use axum::http::uri::Authority;

use crate::App;
use crate::http::output::failure::Failure;

/// Where a caller found the engine: what the operator says, or else what the caller himself asked for. URLs that begin with
/// it work for him.
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
        // A user name before the host would become part of a URL that the caller did not mean.
        let sound = named.and_then(|host| host.parse::<Authority>().ok()).filter(|host| !host.as_str().contains('@'));
        let host = sound.ok_or_else(|| {
            Failure::invalid("invalid_host", "the header Host has to say how you reach this engine, as in 'host:port'")
        })?;
        Ok(Address(format!("{scheme}://{host}")))
    }
}
