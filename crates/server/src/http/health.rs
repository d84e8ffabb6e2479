//! The health endpoints: one for probes, and one that clients call before every command. They have the tag `system`.

use axum::extract::State;
use tarn_api::health::{HealthRequest, HealthzResponse, MessageResponse};

use crate::App;
use crate::http::input::body::Body;
use crate::http::input::call::Call;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Health of the engine
///
/// Needs no key. Responds 503 when the database is not available.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "system",
    responses((status = 200, description = "The engine is healthy", body = HealthzResponse)),
    security(()),
)]
pub(crate) async fn healthz(State(app): State<App>) -> EndpointResult<HealthzResponse> {
    app.control.ping().await?;
    Ok(JsonResponse::ok(HealthzResponse { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }))
}

impl Body for HealthRequest {}

/// Check a client
///
/// The command-line client calls it before every command and prints the message, if there is one.
#[utoipa::path(
    post,
    path = "/health",
    operation_id = "health",
    tag = "system",
    request_body = HealthRequest,
    responses((status = 200, description = "The client may continue", body = MessageResponse)),
)]
pub(crate) async fn check_client(_call: Call<HealthRequest>) -> EndpointResult<MessageResponse> {
    Ok(JsonResponse::ok(MessageResponse { message: None }))
}
