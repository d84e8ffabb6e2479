//! GET /storage/info/{storage_id}

use axum::extract::State;
use tarn_api::storage::StorageInfoResponse;
use tarn_control::operations::storage;

use super::view;
use crate::App;
use crate::http::input::id::Id;
use crate::http::middleware::authenticate::Authenticated;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Storage volume details
///
/// Everything about one volume.
#[utoipa::path(
    get,
    path = "/storage/info/{storage_id}",
    operation_id = "storage_info",
    tag = "storage",
    params(("storage_id" = String, Path)),
    responses(
        (status = 200, description = "The volume", body = StorageInfoResponse),
        (status = 400, description = "Invalid storage ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Storage not found"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn get_volume(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(volume): Id,
) -> EndpointResult<StorageInfoResponse> {
    let found = storage::info(&app.control, &caller, &volume).await?;
    let message = view::volume_text(&found);
    Ok(JsonResponse::ok(StorageInfoResponse { storage_info: view::volume_info(found), message }))
}
