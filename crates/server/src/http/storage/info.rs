//! GET /storage/info/{storage_id}

use tarn_api::storage::StorageInfoResponse;
use tarn_control::operations::storage;

use super::view;
use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Storage volume details
///
/// Everything about one volume.
#[utoipa::path(
    get,
    path = "/storage/info/{storage_id}",
    operation_id = "storage_info",
    params(("storage_id" = String, Path)),
    responses(
        (status = 200, description = "The volume", body = StorageInfoResponse),
        (status = 400, description = "Invalid storage ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Storage not found"),
    ),
)]
pub(crate) async fn get_volume(call: ReadCall, Id(volume): Id) -> EndpointResult<StorageInfoResponse> {
    let found = storage::info(&call.control, &call.caller, &volume).await?;
    let message = view::volume_text(&found);
    Ok(JsonResponse::ok(StorageInfoResponse { storage_info: view::volume_info(found), message }))
}
