//! DELETE /cluster/{cluster}

use tarn_api::clusters::ClusterDestroyRestResponse;
use tarn_control::operations::clusters;

use crate::http::input::call::ChangeCall;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Destroy a cluster
///
/// Destroy a GPU cluster. Returns 202 immediately with request ID. Poll /request/info/{request_id} to track destruction
/// progress.
#[utoipa::path(
    delete,
    path = "/cluster/{cluster}",
    operation_id = "cluster_destroy_cluster__cluster__delete",
    params(("cluster" = String, Path)),
    responses(
        (status = 202, description = "Cluster destruction initiated", body = ClusterDestroyRestResponse),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Cluster not found"),
        (status = 409, description = "Deletion protection enabled or instances not RUNNING"),
        (status = 422, description = "Validation Error"),
    ),
)]
pub(crate) async fn destroy_cluster(call: ChangeCall, Id(cluster): Id) -> EndpointResult<ClusterDestroyRestResponse> {
    let accepted = clusters::destroy(&call.control, &call.caller, &cluster).await?;
    Ok(JsonResponse::accepted(ClusterDestroyRestResponse {
        cluster_id: accepted.cluster.into(),
        request_id: Some(accepted.request.into()),
        message: accepted.message,
    }))
}
