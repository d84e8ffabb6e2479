//! Every response that is a success.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::http::output::failure::Failure;

/// The initial capacity of the buffer; most responses fit.
const TYPICAL_BYTES: usize = 2048;

/// The result of an endpoint.
pub(crate) type EndpointResult<T> = Result<JsonResponse<T>, Failure>;

/// A successful JSON response.
#[derive(Debug)]
pub(crate) struct JsonResponse<T> {
    status: StatusCode,
    retry_after: Option<u32>,
    body: T,
}

impl<T> JsonResponse<T> {
    /// Returns a 200.
    pub(crate) fn ok(body: T) -> Self {
        JsonResponse { status: StatusCode::OK, retry_after: None, body }
    }

    /// Returns a 201.
    pub(crate) fn created(body: T) -> Self {
        JsonResponse { status: StatusCode::CREATED, retry_after: None, body }
    }

    /// Returns a 202: the request is stored, and the work continues in the background.
    pub(crate) fn accepted(body: T) -> Self {
        JsonResponse { status: StatusCode::ACCEPTED, retry_after: None, body }
    }

    /// Tells the client to poll again after this many seconds.
    pub(crate) fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl<T: Serialize> IntoResponse for JsonResponse<T> {
    fn into_response(self) -> Response {
        let mut json = Vec::with_capacity(TYPICAL_BYTES);
        if let Err(error) = serde_json::to_writer(&mut json, &self.body) {
            return Failure::internal(error).into_response();
        }
        let mut response = Response::new(Body::from(json));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
