//! POST /storage/create

use tarn_api::storage::{StorageCreateRequest, StorageCreateRestResponse};
use tarn_control::operations::storage::{self, NewVolume};

use crate::http::input::body::Body;
use crate::http::input::call::Call;
use crate::http::output::response::{EndpointResult, JsonResponse};

impl Body for StorageCreateRequest {
    const ALIASES: &'static [(&'static str, &'static str)] = &[("size_gb", "size"), ("tp_storage_name", "name")];
    // tp 0.0.7 and 0.0.8 sent no size for volumes of the type flex.
    const HINTS: &'static [(&'static str, &'static str)] =
        &[("size", "every volume has a size in GB, of whatever type; tp sends it with --size, as in --size 100")];
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
