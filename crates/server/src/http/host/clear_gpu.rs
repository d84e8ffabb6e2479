//! POST /admin/gpu/clear/{gpu_id}

use axum::extract::State;
use tarn_api::health::MessageResponse;
use tarn_control::operations::host;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::id::Id;

/// Clear a GPU
///
/// Say that a GPU is right again of which something fatal was seen, as after a reset or a repair.
#[utoipa::path(
    post,
    path = "/admin/gpu/clear/{gpu_id}",
    operation_id = "admin_gpu_clear",
    tag = "admin",
    params(("gpu_id" = String, Path)),
    responses(
        (status = 200, description = "The GPU is cleared", body = MessageResponse),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "GPU not found"),
        (status = 409, description = "Nothing fatal was seen of it"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn clear_gpu(State(app): State<App>, Acting(caller): Acting, Id(gpu): Id) -> Outcome<MessageResponse> {
    let message = host::clear_gpu(&app.control, &caller, &gpu).await?;
    Ok(Answer::ok(MessageResponse { message: Some(message) }))
}
