//! POST /storage/attach

use tarn_api::storage::{StorageAttachRestRequest, StorageAttachRestResponse};
use tarn_control::operations::storage;

use crate::http::input::body::Body;
use crate::http::input::call::Call;
use crate::http::output::response::{EndpointResult, JsonResponse};

impl Body for StorageAttachRestRequest {}

/// Attach storage to a cluster
///
/// Attach a storage volume to a cluster. Returns 202 immediately with request IDs. Poll /request/info/{request_id} to
/// track progress. WARNING: Attaching storage restarts all cluster nodes.
#[utoipa::path(
    post,
    path = "/storage/attach",
    operation_id = "storage_attach",
    request_body = StorageAttachRestRequest,
    responses(
        (status = 202, description = "Storage attachment initiated", body = StorageAttachRestResponse),
        (status = 400, description = "Invalid request or cluster not eligible"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Storage or cluster not found"),
        (status = 409, description = "Cluster already has storage attached or storage not ready"),
    ),
)]
pub(crate) async fn attach_volume(call: Call<StorageAttachRestRequest>) -> EndpointResult<StorageAttachRestResponse> {
    let StorageAttachRestRequest { storage_id, cluster_ids, live } = call.body;
    // The schema has refused any other number than one.
    let cluster = cluster_ids.first().map_or("", String::as_str);
    let accepted = storage::attach(&call.control, &call.caller, &storage_id, cluster, live).await?;
    Ok(JsonResponse::accepted(StorageAttachRestResponse {
        storage_id: accepted.volume.into(),
        cluster_ids: vec![accepted.cluster.into()],
        request_ids: vec![accepted.request.into()],
        message: accepted.message,
    }))
}
