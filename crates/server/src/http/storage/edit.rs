//! PATCH /storage/edit/{storage_id}

use tarn_api::clusters::EditResponse;
use tarn_api::storage::StorageEditRequest;
use tarn_control::operations::storage::{self, VolumeEdit};

use crate::http::input::body::Body;
use crate::http::input::call::Call;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

impl Body for StorageEditRequest {}

/// Edit a storage volume
///
/// Change the name or the deletion protection of a volume immediately, or its size in the background. A volume can only
/// grow.
#[utoipa::path(
    patch,
    path = "/storage/edit/{storage_id}",
    operation_id = "storage_edit",
    params(("storage_id" = String, Path)),
    request_body = StorageEditRequest,
    responses(
        (status = 202, description = "Storage changed or growing", body = EditResponse),
        (status = 400, description = "Nothing to change, invalid storage ID format or invalid name"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Storage not found"),
        (status = 409, description = "Name taken, storage not ready, smaller than it is, or not enough space in the pool"),
    ),
)]
pub(crate) async fn edit_volume(Id(volume): Id, call: Call<StorageEditRequest>) -> EndpointResult<EditResponse> {
    let StorageEditRequest { tp_storage_name, size_gb, deletion_protection } = call.body;
    let edit = VolumeEdit { name: tp_storage_name, size_gb, deletion_protection };
    let accepted = storage::edit(&call.control, &call.caller, &volume, edit).await?;
    Ok(JsonResponse::accepted(EditResponse { message: accepted.message, request_id: Some(accepted.request.into()) }))
}
