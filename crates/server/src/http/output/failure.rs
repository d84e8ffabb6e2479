//! Every answer that is not a success, and the one place where a failure of the control plane becomes a status.

use std::error::Error;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tarn_api::errors::{Location, ValidationError};
use tarn_control::Kind;

/// A refused or failed call. It has no body yet: [`crate::http::middleware::observe`] writes it, because only there the call's id is known,
/// and logs the cause there, once.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// For 422 only: everything that is wrong with the input.
    pub(crate) errors: Vec<ValidationError>,
    /// After how many seconds a repetition makes sense.
    pub(crate) retry_after: Option<u64>,
    /// What lies behind it; for the log.
    pub(crate) cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure with a public text.
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Failure { status, code, message: message.into(), errors: Vec::new(), retry_after: None, cause: None }
    }

    /// The call makes no sense: 400.
    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Failure::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// The input is not what the schema says: 422, with every error at once.
    pub(crate) fn unprocessable(errors: Vec<ValidationError>) -> Self {
        let message = errors.iter().map(error_sentence).collect::<Vec<_>>().join("; ");
        Failure { errors, ..Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "validation_error", message) }
    }

    /// No key, or a wrong one: 401.
    pub(crate) fn unauthenticated() -> Self {
        let message = "an API key is needed; send it as 'Authorization: Bearer YOUR_TENSORPOOL_KEY'";
        Failure::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
    }

    /// Too many calls with this key: 429.
    pub(crate) fn too_many(seconds: u64) -> Self {
        let message = format!("too many calls with this API key; try again in {seconds} s");
        Failure { retry_after: Some(seconds), ..Failure::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message) }
    }

    /// A fault of ours: 500. The cause goes to the log.
    pub(crate) fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let message = "an internal error occurred; it has been logged with this call's request_id";
        let failure = Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message);
        Failure { cause: Some(cause.into()), ..failure }
    }

    /// The body of the answer.
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

/// The failure travels in the extensions of a bare answer.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// One error in the words of FastAPI.
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
