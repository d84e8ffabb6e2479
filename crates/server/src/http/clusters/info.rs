//! GET /cluster/info/{cluster}

use tarn_api::clusters::ClusterInfoResponse;
use tarn_control::operations::clusters;

use super::view;
use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Cluster details
///
/// Everything about one cluster, by ID or name.
#[utoipa::path(
    get,
    path = "/cluster/info/{cluster}",
    operation_id = "cluster_info",
    params(("cluster" = String, Path)),
    responses(
        (status = 200, description = "The cluster", body = ClusterInfoResponse),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Cluster not found"),
    ),
)]
pub(crate) async fn get_cluster(call: ReadCall, Id(cluster): Id) -> EndpointResult<ClusterInfoResponse> {
    let found = clusters::info(&call.control, &call.caller, &cluster).await?;
    let message = view::cluster_text(&found);
    Ok(JsonResponse::ok(ClusterInfoResponse { cluster_info: view::cluster_info(&call.control, found), message }))
}
