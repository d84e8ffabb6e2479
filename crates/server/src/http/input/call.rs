//! The input that handlers share: the control plane, the caller (with the `Idempotency-Key`, if the call changes
//! something), and the body.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use tarn_control::{Caller, Control, Idempotency};

use crate::App;
use crate::http::input::body::{self, Body, Parsed};
use crate::http::middleware::authenticate::{bearer_token, take_caller};
use crate::http::middleware::observe::CallRecord;
use crate::http::output::failure::Failure;

/// The longest `Idempotency-Key`.
const MAX_KEY_BYTES: usize = 255;

/// Separates the keys derived here from any other use of the caller's secret.
const SEAL_CONTEXT: &str = "tarn 2026-11 outcome of an idempotent call";

/// A call of an endpoint that only reads.
pub(crate) struct ReadCall {
    pub(crate) control: Control,
    pub(crate) caller: Caller,
}

impl FromRequestParts<App> for ReadCall {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        Ok(ReadCall { control: app.control.clone(), caller: take_caller(parts)? })
    }
}

/// A call of an endpoint that changes something and takes no body; a body is ignored.
pub(crate) struct ChangeCall {
    pub(crate) control: Control,
    pub(crate) caller: Caller,
}

impl FromRequestParts<App> for ChangeCall {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let mut caller = take_caller(parts)?;
        caller.idempotency = read_idempotency(parts, b"")?;
        Ok(ChangeCall { control: app.control.clone(), caller })
    }
}

/// A call of an endpoint with a body.
pub(crate) struct Call<B> {
    pub(crate) control: Control,
    pub(crate) caller: Caller,
    pub(crate) body: B,
}

impl<B: Body> FromRequest<App> for Call<B> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        let mut caller = take_caller(&mut parts)?;
        let text = body::read_body(body).await?;
        let Parsed { body, warnings } = app.shared.validators.parse(&text);
        if let Some(record) = parts.extensions.get::<Arc<CallRecord>>() {
            record.warn(warnings);
        }
        let body = body?;
        caller.idempotency = read_idempotency(&parts, &text)?;
        Ok(Call { control: app.control.clone(), caller, body })
    }
}

fn read_idempotency(parts: &Parts, body: &[u8]) -> Result<Option<Idempotency>, Failure> {
    let Some(key) = idempotency_key(&parts.headers)? else {
        return Ok(None);
    };
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let mut hasher = blake3::Hasher::new();
    for part in [parts.method.as_str().as_bytes(), target.as_bytes(), body] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    let secret = [bearer_token(&parts.headers).unwrap_or_default(), key].join("\n");
    Ok(Some(Idempotency {
        key: key.to_owned(),
        fingerprint: *hasher.finalize().as_bytes(),
        seal: blake3::derive_key(SEAL_CONTEXT, secret.as_bytes()),
    }))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bytes = value.as_bytes();
    let sound = (1..=MAX_KEY_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    match (sound, values.next(), value.to_str()) {
        (true, None, Ok(key)) => Ok(Some(key)),
        _ => Err(Failure::invalid(
            "invalid_idempotency_key",
            "Idempotency-Key must have 1 to 255 visible ASCII characters and be sent once",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(key: &[u8]) -> Parts {
        let request = axum::http::Request::builder()
            .method("POST")
            .uri("/cluster/create?a=1")
            .header("authorization", "Bearer tp-secret")
            .header("idempotency-key", key);
        request.body(()).unwrap().into_parts().0
    }

    /// Malformed idempotency keys are refused.
    #[test]
    fn malformed_idempotency_keys_are_refused() {
        for key in [&b""[..], b"a b", b"caf\xc3\xa9", b"\t", &[b'a'; 256]] {
            let failure = read_idempotency(&parts(key), b"").unwrap_err();
            assert_eq!((failure.status.as_u16(), failure.code), (400, "invalid_idempotency_key"));
        }
    }

    /// Another body has another fingerprint and the same seal.
    #[test]
    fn fingerprint_depends_on_body() {
        let of = |body: &[u8]| read_idempotency(&parts(b"once"), body).unwrap().unwrap();
        assert_eq!(of(b"x").fingerprint, of(b"x").fingerprint);
        assert_ne!(of(b"x").fingerprint, of(b"y").fingerprint);
        assert_eq!(of(b"x").seal, of(b"y").seal);
    }
}
