//! POST /admin/host/undrain

use axum::extract::State;
use tarn_api::health::MessageResponse;
use tarn_control::operations::host;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;

/// Undrain the host
///
/// New clusters are placed again, those that wait in line first.
#[utoipa::path(
    post,
    path = "/admin/host/undrain",
    operation_id = "admin_host_undrain",
    tag = "admin",
    responses(
        (status = 200, description = "The host takes on new clusters", body = MessageResponse),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn undrain(State(app): State<App>, Acting(caller): Acting) -> Outcome<MessageResponse> {
    let message = host::drain(&app.control, &caller, None).await?;
    Ok(Answer::ok(MessageResponse { message: Some(message) }))
}
