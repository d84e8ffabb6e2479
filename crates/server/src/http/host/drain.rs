//! POST /admin/host/drain

use axum::extract::State;
use tarn_api::health::MessageResponse;
use tarn_api::host::DrainRequest;
use tarn_control::operations::host::{self, DrainReason};

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::body::Body;
use crate::http::call::Call;

impl Body for DrainRequest {}

/// Drain the host
///
/// Nothing new is placed any more; what runs goes on, and claims wait in line.
#[utoipa::path(
    post,
    path = "/admin/host/drain",
    operation_id = "admin_host_drain",
    tag = "admin",
    request_body = DrainRequest,
    responses(
        (status = 200, description = "The host is drained", body = MessageResponse),
        (status = 400, description = "Invalid reason"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn drain(State(app): State<App>, call: Call<DrainRequest>) -> Outcome<MessageResponse> {
    let message = host::drain(&app.control, &call.caller, Some(DrainReason(call.body.reason))).await?;
    Ok(Answer::ok(MessageResponse { message: Some(message) }))
}
