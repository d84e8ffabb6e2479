//! GET /admin/gpu/list

use axum::extract::State;
use tarn_api::host::GpuListResponse;
use tarn_control::operations::host;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;

/// List GPUs
///
/// Every GPU of the host: how it is, whether it is offered, who has it, and what it measures.
#[utoipa::path(
    get,
    path = "/admin/gpu/list",
    operation_id = "admin_gpu_list",
    tag = "admin",
    responses(
        (status = 200, description = "The GPUs", body = GpuListResponse),
        (status = 403, description = "Only administrators of the engine may do this"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn list_gpus(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Outcome<GpuListResponse> {
    let gpus = host::list_gpus(&app.control, &caller).await?;
    let message = view::table(&gpus);
    Ok(Answer::ok(GpuListResponse { gpus: gpus.into_iter().map(view::gpu).collect(), message }))
}
