//! GET /healthz

use axum::extract::State;
use tarn_api::health::HealthzResponse;

use crate::App;
use crate::http::answer::{Answer, Outcome};

/// Whether the engine can answer
///
/// Needs no key. Answers 503 when the database does not answer.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "system",
    responses((status = 200, description = "The engine can answer", body = HealthzResponse)),
    security(()),
)]
pub(crate) async fn healthz(State(app): State<App>) -> Outcome<HealthzResponse> {
    app.control.ping().await?;
    Ok(Answer::ok(HealthzResponse { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }))
}
