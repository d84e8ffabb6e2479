//! Limits the calls in progress of each client behind trusted proxies. A connection of a proxy carries the calls of
//! many clients, so its calls are counted, and not the connection. Only addresses with calls in progress are known.

use std::net::IpAddr;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use tarn_base::fair_share::{FairShare, Permit};
use tokio::sync::Semaphore;

use super::connections::network_of;
use crate::http::output::failure::Failure;

/// How many calls of one client behind trusted proxies may be in progress, as many as another client may have
/// connections.
pub(super) const CALLS_PER_CLIENT: usize = 512;

/// The place of a call in progress.
pub(super) type CallPermit = Permit<IpAddr>;

/// The form of a listener's refusals.
#[derive(Clone, Copy, Debug, Default)]
pub enum RefusalForm {
    /// That of the API.
    #[default]
    Json,
    /// That of S3, whose clients know how to wait.
    S3,
}

/// The calls in progress behind trusted proxies.
#[derive(Debug)]
pub(super) struct ForwardedCalls {
    permits: FairShare<IpAddr>,
    form: RefusalForm,
}

impl ForwardedCalls {
    pub(super) fn new(form: RefusalForm) -> ForwardedCalls {
        // The number of all connections is limited elsewhere.
        ForwardedCalls { permits: FairShare::new(Semaphore::MAX_PERMITS, CALLS_PER_CLIENT), form }
    }

    /// Counts a call for its client. Returns nothing if the client has too many.
    pub(super) fn admit(&self, client: IpAddr) -> Option<CallPermit> {
        self.permits.try_acquire(&network_of(client), 1).ok()
    }

    /// The response to a call that was not admitted.
    pub(super) fn refusal(&self) -> Response {
        metrics::counter!("tarn_forwarded_calls_refused_total").increment(1);
        self.form.too_many_calls()
    }
}

impl RefusalForm {
    fn too_many_calls(self) -> Response {
        let (status, kind, body) = match self {
            RefusalForm::Json => {
                let message =
                    format!("your address has {CALLS_PER_CLIENT} calls in progress, which is the limit; end some");
                let Failure { message, code, status, .. } =
                    Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", message);
                let body = serde_json::json!({ "message": message, "detail": message, "code": code });
                (status, "application/json", body.to_string())
            }
            RefusalForm::S3 => {
                let message =
                    format!("Your address has {CALLS_PER_CLIENT} calls in progress. Reduce your request rate.");
                let body = format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>SlowDown</Code><Message>{message}</Message></Error>"
                );
                (StatusCode::SERVICE_UNAVAILABLE, "application/xml", body)
            }
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refusal has the form that the clients of the listener understand.
    #[tokio::test]
    async fn refusals_have_form_of_listener() {
        for (form, status, kind, word) in [
            (RefusalForm::Json, 429, "application/json", "\"code\":\"too_many_connections\""),
            (RefusalForm::S3, 503, "application/xml", "<Code>SlowDown</Code>"),
        ] {
            let response = ForwardedCalls::new(form).refusal();
            let (head, body) = response.into_parts();
            assert_eq!(head.status.as_u16(), status);
            assert_eq!(head.headers[header::CONTENT_TYPE], kind);
            let body = axum::body::to_bytes(body, 4096).await.unwrap();
            assert!(String::from_utf8_lossy(&body).contains(word), "{body:?}");
        }
    }
}
