//! POST /storage/detach

use tarn_api::storage::{StorageDetachRestRequest, StorageDetachRestResponse};
use tarn_control::operations::storage;

use crate::http::input::body::Body;
use crate::http::input::call::Call;
use crate::http::output::response::{EndpointResult, JsonResponse};

impl Body for StorageDetachRestRequest {}

/// Detach storage from a cluster
///
/// Detach a storage volume from a cluster. Returns 202 immediately with request ID. Poll /request/info/{request_id} to
/// track progress. WARNING: Detaching storage restarts all cluster nodes. Processes that use the volume are asked to
/// end first, and killed if they do not end in time; with live there is no restart, and the call is refused while
/// processes use the volume.
#[utoipa::path(
    post,
    path = "/storage/detach",
    operation_id = "storage_detach",
    request_body = StorageDetachRestRequest,
    responses(
        (status = 202, description = "Storage detachment initiated", body = StorageDetachRestResponse),
        (status = 400, description = "Invalid storage ID format, or the engine does not support live"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Storage or cluster not found"),
        (status = 409, description = "Storage not attached to the cluster, cluster busy, or storage in use"),
    ),
)]
pub(crate) async fn detach_volume(call: Call<StorageDetachRestRequest>) -> EndpointResult<StorageDetachRestResponse> {
    let StorageDetachRestRequest { storage_id, cluster_id, live } = call.body;
    let accepted = storage::detach(&call.control, &call.caller, &storage_id, &cluster_id, live).await?;
    Ok(JsonResponse::accepted(StorageDetachRestResponse {
        storage_id: accepted.volume.into(),
        cluster_id: accepted.cluster.into(),
        request_id: Some(accepted.request.into()),
        message: accepted.message,
    }))
}
