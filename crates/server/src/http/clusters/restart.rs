//! POST /cluster/restart/{cluster}

use tarn_api::clusters::ClusterRestartRestResponse;
use tarn_control::operations::clusters;

use crate::http::input::call::ChangeCall;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Restart a cluster
///
/// Restart all nodes of a cluster that is RUNNING, or FAILED because a node died. They keep their IDs, names,
/// addresses, disks and keys. Returns 202 immediately with request ID. Poll /request/info/{request_id} to track
/// progress. An addition of Tarn: other engines do not have it.
#[utoipa::path(
    post,
    path = "/cluster/restart/{cluster}",
    operation_id = "cluster_restart",
    params(("cluster" = String, Path)),
    responses(
        (status = 202, description = "Cluster restart initiated", body = ClusterRestartRestResponse),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Cluster not found"),
        (status = 409, description = "The cluster is busy, or has no nodes to restart"),
        (status = 422, description = "Validation Error"),
    ),
)]
pub(crate) async fn restart_cluster(call: ChangeCall, Id(cluster): Id) -> EndpointResult<ClusterRestartRestResponse> {
    let accepted = clusters::restart(&call.control, &call.caller, &cluster).await?;
    Ok(JsonResponse::accepted(ClusterRestartRestResponse {
        cluster_id: accepted.cluster.into(),
        request_id: Some(accepted.request.into()),
        message: accepted.message,
    }))
}
