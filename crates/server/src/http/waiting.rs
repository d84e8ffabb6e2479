//! What the listeners serve while the engine waits for what it cannot start without: its database, or space on its
//! disk. Every call gets a 503 that says so, and only `/healthz` says for what exactly.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tarn_model::Ids;
use tokio::sync::watch;

use super::middleware::observe::handle_call;
use super::openapi;
use super::output::failure::Failure;
use crate::RefusalForm;

/// After how many seconds a client may try again.
const RETRY_AFTER: u64 = 2;

/// Why the engine waits, as it is at the moment.
type Reason = watch::Receiver<String>;

/// What a listener serves while the engine waits.
pub fn waiting_router(reason: Reason, ids: Arc<dyn Ids>, form: RefusalForm) -> Router {
    match form {
        RefusalForm::Json => Router::new()
            .route("/healthz", get(refuse_probe))
            .route("/openapi.json", get(openapi::serve_openapi))
            .fallback(refuse_call)
            .method_not_allowed_fallback(refuse_call)
            .layer(from_fn_with_state(ids, observe_call))
            .with_state(reason),
        RefusalForm::S3 => Router::new().fallback(refuse_s3_call),
    }
}

/// The failure of a probe while the engine waits.
pub(crate) fn waiting_failure(reason: &str) -> Failure {
    refusal(format!("the engine waits and continues by itself: {reason}"))
}

fn refusal(message: String) -> Failure {
    let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "engine_waiting", message);
    Failure { retry_after: Some(RETRY_AFTER), ..failure }
}

async fn observe_call(State(ids): State<Arc<dyn Ids>>, request: Request, next: Next) -> Response {
    handle_call(format!("{:016x}", ids.bits()), request, next).await
}

async fn refuse_probe(State(reason): State<Reason>) -> Failure {
    waiting_failure(&reason.borrow())
}

async fn refuse_call() -> Failure {
    let message = "the engine has started and waits for its database, or for space on its disk; try again in a moment \
                   (GET /healthz says what it waits for)";
    refusal(message.to_owned())
}

async fn refuse_s3_call() -> Response {
    let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>ServiceUnavailable</Code><Message>The service \
                waits for its database. Try again.</Message></Error>";
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/xml")),
        (header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER)),
    ];
    (StatusCode::SERVICE_UNAVAILABLE, headers, Body::from(body)).into_response()
}

#[cfg(test)]
mod tests {
    use tarn_model::testing::SeededIds;
    use tower::ServiceExt;

    use super::*;

    async fn call(form: RefusalForm, method: &str, path: &str) -> (StatusCode, String, String) {
        let (_keep, reason) = watch::channel("its disk is full".to_owned());
        let router = waiting_router(reason, Arc::new(SeededIds::new(1)), form);
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let (head, body) = router.oneshot(request).await.unwrap().into_parts();
        let retry = head.headers.get(header::RETRY_AFTER).map_or("", |value| value.to_str().unwrap()).to_owned();
        let body = axum::body::to_bytes(body, 1 << 22).await.unwrap();
        (head.status, retry, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Every call is refused in the form of its listener, and only a probe is told what the engine waits for.
    #[tokio::test]
    async fn calls_are_refused_while_engine_waits() {
        for (method, path, tells) in
            [("GET", "/healthz", true), ("GET", "/cluster/list", false), ("POST", "/no/such/route", false)]
        {
            let (status, retry, body) = call(RefusalForm::Json, method, path).await;
            assert_eq!((status.as_u16(), retry.as_str()), (503, "2"), "{path}");
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(body["code"], "engine_waiting");
            assert_eq!(body["message"].as_str().unwrap().contains("its disk is full"), tells, "{body}");
            assert!(body["request_id"].is_string(), "{body}");
        }
        let (status, retry, body) = call(RefusalForm::S3, "PUT", "/bucket/key").await;
        assert_eq!((status.as_u16(), retry.as_str()), (503, "2"));
        assert!(body.contains("<Code>ServiceUnavailable</Code>"), "{body}");
        assert_eq!(call(RefusalForm::Json, "GET", "/openapi.json").await.0, 200);
    }
}
