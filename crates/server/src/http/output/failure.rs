//! Every response that is not a success, and the only place where an error of the control plane becomes a status.

use std::error::Error;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tarn_api::errors::{Location, ValidationError};
use tarn_control::Kind;

/// A refused or failed call. The middleware `observe` renders its body, because only it knows the id of the call, and
/// logs the cause once.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// For 422 only: all errors of the input.
    pub(crate) errors: Vec<ValidationError>,
    /// After how many seconds the call may be repeated.
    pub(crate) retry_after: Option<u64>,
    /// The cause, for the log.
    pub(crate) cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// Returns a failure with a public message.
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Failure { status, code, message: message.into(), errors: Vec::new(), retry_after: None, cause: None }
    }

    /// Returns a 400: the call is invalid.
    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Failure::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// Returns a 422 with all errors of the input.
    pub(crate) fn unprocessable(errors: Vec<ValidationError>) -> Self {
        let message = errors.iter().map(error_sentence).collect::<Vec<_>>().join("; ");
        Failure { errors, ..Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "validation_error", message) }
    }

    /// Returns a 401: the key is missing or wrong.
    pub(crate) fn unauthenticated() -> Self {
        let message = "an API key is needed; send it as 'Authorization: Bearer YOUR_TENSORPOOL_KEY'";
        Failure::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
    }

    /// Returns a 429: too many calls with this key.
    pub(crate) fn too_many(seconds: u64) -> Self {
        let message = format!("too many calls with this API key; try again in {seconds} s");
        Failure { retry_after: Some(seconds), ..Failure::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message) }
    }

    /// Returns a 500. The cause is only logged.
    pub(crate) fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let message = "an internal error occurred; it has been logged with this call's request_id";
        let failure = Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message);
        Failure { cause: Some(cause.into()), ..failure }
    }

    /// Returns the body of the response.
    pub(crate) fn body(&self, call_id: &str) -> Vec<u8> {
        let detail = match self.status {
            StatusCode::UNPROCESSABLE_ENTITY => json!(self.errors),
            _ => json!(self.message),
        };
        let body = json!({ "message": self.message, "detail": detail, "code": self.code, "request_id": call_id });
        body.to_string().into_bytes()
    }
}

impl From<tarn_control::Error> for Failure {
    fn from(error: tarn_control::Error) -> Self {
        let (status, retry_after) = match error.kind {
            Kind::Invalid => (StatusCode::BAD_REQUEST, None),
            Kind::Unauthenticated => (StatusCode::UNAUTHORIZED, None),
            Kind::Forbidden => (StatusCode::FORBIDDEN, None),
            Kind::NotFound => (StatusCode::NOT_FOUND, None),
            Kind::Conflict | Kind::Capacity => (StatusCode::CONFLICT, None),
            Kind::Payment => (StatusCode::PAYMENT_REQUIRED, None),
            Kind::RateLimited => (StatusCode::TOO_MANY_REQUESTS, Some(1)),
            Kind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
            Kind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        Failure { retry_after, cause: error.cause, ..Failure::new(status, error.code, error.message) }
    }
}

/// The failure is passed to the middleware in the extensions of an empty response.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// Returns one error in the form of FastAPI.
pub(crate) fn validation_error(loc: Vec<Location>, kind: &str, msg: impl Into<String>) -> ValidationError {
    ValidationError { loc, msg: msg.into(), kind: kind.to_owned() }
}

fn error_sentence(error: &ValidationError) -> String {
    let steps = error.loc.iter().map(|step| match step {
        Location::Field(name) => name.clone(),
        Location::Index(at) => at.to_string(),
    });
    format!("{}: {}", steps.collect::<Vec<_>>().join("."), error.msg)
}
