//! Wraps every call: gives it an id, writes its log line and metrics, and renders the body of a failure.

use std::any::Any;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use tarn_control::Caller;
use tarn_model::ids::UserId;
use tokio::time::Instant;

use crate::App;
use crate::http::output::failure::Failure;
use crate::http::output::warnings::add_warnings;
use crate::serve::ClientAddress;

/// What is known about a call while it is handled.
pub(crate) struct CallRecord {
    id: String,
    address: Option<IpAddr>,
    user: OnceLock<UserId>,
    /// What the response adds for the sender of the body.
    warnings: OnceLock<Vec<String>>,
}

impl CallRecord {
    /// Returns the caller with what is known of their call.
    pub(crate) fn identify(&self, caller: Caller) -> Caller {
        self.user.get_or_init(|| caller.user.id.clone());
        Caller { address: self.address, call: Some(self.id.clone()), ..caller }
    }

    /// Adds warnings to the response.
    pub(crate) fn warn(&self, warnings: Vec<String>) {
        if !warnings.is_empty() {
            self.warnings.get_or_init(|| warnings);
        }
    }

    /// Returns the address of the client.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Returns the id of the call.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the caller, once it is authenticated.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.get().map(UserId::as_str)
    }
}

/// Gives the call an id and handles it.
pub(crate) async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    handle_call(app.call_id(), request, next).await
}

/// Handles a call, including a panic in it.
pub(crate) async fn handle_call(id: String, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let address = request.extensions().get::<ClientAddress>().map(|client| client.0);
    let record = Arc::new(CallRecord { id, address, user: OnceLock::new(), warnings: OnceLock::new() });
    let id = record.id();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("unknown", MatchedPath::as_str);
    request.extensions_mut().insert(record.clone());

    let outcome = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = outcome.unwrap_or_else(|panic| Failure::internal(panic_text(panic)).into_response());
    let failure = response.extensions_mut().remove::<Arc<Failure>>();
    if let Some(failure) = &failure {
        write_failure(&mut response, failure, id);
    }
    if let Some(warnings) = record.warnings.get() {
        response = add_warnings(response, warnings).await;
    }
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert("x-request-id", value);
    }
    let call = CallSummary { id, method: &method, route, status: response.status(), user: record.user.get() };
    call.write_log(failure.as_deref());
    call.record_metrics(began);
    response
}

fn write_failure(response: &mut Response, failure: &Failure, call_id: &str) {
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = failure.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if failure.status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    *response.body_mut() = Body::from(failure.body(call_id));
}

/// One call, as the log and the metrics show it.
struct CallSummary<'a> {
    id: &'a str,
    method: &'a Method,
    route: &'a str,
    status: StatusCode,
    user: Option<&'a UserId>,
}

impl CallSummary<'_> {
    fn write_log(&self, failure: Option<&Failure>) {
        let CallSummary { id, method, route, .. } = *self;
        let (status, user) = (self.status.as_u16(), self.user.map(UserId::as_str));
        match failure {
            Some(failure) if self.status.is_server_error() => {
                let cause = failure.cause.as_deref().map(tracing::field::display);
                tracing::error!(request_id = id, %method, route, status, user, code = failure.code, cause, "call failed");
            }
            Some(failure) if matches!(status, 401 | 403 | 429) => {
                tracing::warn!(request_id = id, %method, route, status, user, code = failure.code, "call refused");
            }
            Some(failure) => {
                tracing::info!(request_id = id, %method, route, status, user, code = failure.code, "call refused");
            }
            // The stock client calls this before every command; it is no more important than a read.
            None if method.is_safe() || route == "/health" => {
                tracing::debug!(request_id = id, %method, route, status, user, "call")
            }
            None => tracing::info!(request_id = id, %method, route, status, user, "call"),
        }
    }

    fn record_metrics(&self, began: Instant) {
        let (method, route) = (method_label(self.method), self.route.to_owned());
        let status = self.status.as_str().to_owned();
        metrics::histogram!("http_request_duration_seconds", "method" => method, "route" => route.clone())
            .record(began.elapsed().as_secs_f64());
        metrics::counter!("http_requests_total", "method" => method, "route" => route, "status" => status).increment(1);
    }
}

/// Callers may send any method; the number of label values must stay bounded.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panic: {}", text.unwrap_or_else(|| "without a text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use serde_json::{Value, json};
    use tower::ServiceExt;

    async fn call(path: &str) -> (u16, Value) {
        let router = Router::new()
            .route("/panic", get(async || -> String { panic!("the secret cause") }))
            .route("/internal", get(async || Failure::internal("the secret cause")))
            .layer(from_fn(async |request: Request, next: Next| handle_call("id".to_owned(), request, next).await));
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.headers()["x-request-id"], "id");
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// An internal error is reported without its cause.
    #[tokio::test]
    async fn internal_error_hides_cause() {
        let message = "an internal error occurred; it has been logged with this call's request_id";
        let expected = json!({ "message": message, "detail": message, "code": "internal", "request_id": "id" });
        assert_eq!(call("/internal").await, (500, expected.clone()));
        assert_eq!(call("/panic").await, (500, expected));
    }
}
