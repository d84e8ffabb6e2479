//! The endpoints that create, change and destroy volumes.

use tarn_api::clusters::EditResponse;
use tarn_api::storage::{
    StorageCreateRequest, StorageCreateRestResponse, StorageDestroyRestResponse, StorageEditRequest,
};
use tarn_control::operations::storage::{self, NewVolume, VolumeEdit};

use crate::http::input::body::Body;
use crate::http::input::call::{Call, ChangeCall};
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

impl Body for StorageCreateRequest {
    const ALIASES: &'static [(&'static str, &'static str)] = &[("size_gb", "size"), ("tp_storage_name", "name")];
}

/// Create a storage volume
///
/// Create a shared storage volume. Returns 202 immediately with request ID. Poll /request/info/{request_id} to track
/// progress.
#[utoipa::path(
    post,
    path = "/storage/create",
    operation_id = "storage_create",
    request_body = StorageCreateRequest,
    responses(
        (status = 202, description = "Storage creation initiated", body = StorageCreateRestResponse),
        (status = 400, description = "Invalid size or name, or the engine has no volumes"),
        (status = 402, description = "Insufficient balance"),
        (status = 409, description = "Name taken, or not enough space in the pool"),
    ),
)]
pub(crate) async fn create_volume(call: Call<StorageCreateRequest>) -> EndpointResult<StorageCreateRestResponse> {
    let StorageCreateRequest { size, name, deletion_protection } = call.body;
    let new = NewVolume { size_gb: size, name, deletion_protection };
    let accepted = storage::create(&call.control, &call.caller, new).await?;
    Ok(JsonResponse::accepted(StorageCreateRestResponse {
        storage_id: accepted.volume.into(),
        request_id: Some(accepted.request.into()),
        message: accepted.message,
    }))
}

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
