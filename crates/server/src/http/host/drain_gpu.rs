//! POST /admin/gpu/drain/{gpu_id}

use axum::extract::State;
use tarn_api::health::MessageResponse;
use tarn_api::host::DrainRequest;
use tarn_control::operations::host::{self, DrainReason};

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Call;
use crate::http::id::Id;

/// Drain a GPU
///
/// It is given to nobody any more; whoever has it keeps it.
#[utoipa::path(
    post,
    path = "/admin/gpu/drain/{gpu_id}",
    operation_id = "admin_gpu_drain",
    tag = "admin",
    params(("gpu_id" = String, Path)),
    request_body = DrainRequest,
    responses(
        (status = 200, description = "The GPU is drained", body = MessageResponse),
        (status = 400, description = "Invalid reason"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "GPU not found"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn drain_gpu(
    State(app): State<App>,
    Id(gpu): Id,
    call: Call<DrainRequest>,
) -> Outcome<MessageResponse> {
    let message = host::drain_gpu(&app.control, &call.caller, &gpu, Some(DrainReason(call.body.reason))).await?;
    Ok(Answer::ok(MessageResponse { message: Some(message) }))
}
