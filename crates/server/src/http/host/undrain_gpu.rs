//! POST /admin/gpu/undrain/{gpu_id}

use axum::extract::State;
use tarn_api::health::MessageResponse;
use tarn_control::operations::host;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::id::Id;

/// Undrain a GPU
///
/// It is offered again, if nothing is wrong with it.
#[utoipa::path(
    post,
    path = "/admin/gpu/undrain/{gpu_id}",
    operation_id = "admin_gpu_undrain",
    tag = "admin",
    params(("gpu_id" = String, Path)),
    responses(
        (status = 200, description = "The GPU is not drained", body = MessageResponse),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "GPU not found"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn undrain_gpu(
    State(app): State<App>,
    Acting(caller): Acting,
    Id(gpu): Id,
) -> Outcome<MessageResponse> {
    let message = host::drain_gpu(&app.control, &caller, &gpu, None).await?;
    Ok(Answer::ok(MessageResponse { message: Some(message) }))
}
