//! DELETE /storage/{storage_id}

use tarn_api::storage::StorageDestroyRestResponse;
use tarn_control::operations::storage;

use crate::http::input::call::ChangeCall;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Destroy a storage volume
///
/// Destroy a storage volume. Returns 202 immediately with request ID. Poll /request/info/{request_id} to track
/// destruction progress.
#[utoipa::path(
    delete,
    path = "/storage/{storage_id}",
    operation_id = "storage_destroy",
    params(("storage_id" = String, Path)),
    responses(
        (status = 202, description = "Storage destruction initiated", body = StorageDestroyRestResponse),
        (status = 400, description = "Invalid storage ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Storage not found"),
        (status = 409, description = "Deletion protection enabled or storage attached to clusters"),
        (status = 422, description = "Validation Error"),
    ),
)]
pub(crate) async fn destroy_volume(call: ChangeCall, Id(volume): Id) -> EndpointResult<StorageDestroyRestResponse> {
    let accepted = storage::destroy(&call.control, &call.caller, &volume).await?;
    Ok(JsonResponse::accepted(StorageDestroyRestResponse {
        storage_id: accepted.volume.into(),
        request_id: Some(accepted.request.into()),
        message: accepted.message,
    }))
}
