//! GET /cluster/operations/{cluster}

use tarn_api::requests::ClusterOperationsResponse;
use tarn_control::operations::clusters;

use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::input::query::Params;
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::requests::{KindQuery, request_info, request_table};

/// List operations on a cluster
///
/// The requests that concern a cluster, newest first, with optional type and status filters.
#[utoipa::path(
    get,
    path = "/cluster/operations/{cluster}",
    operation_id = "cluster_operations",
    params(("cluster" = String, Path), KindQuery),
    responses(
        (status = 200, description = "The operations", body = ClusterOperationsResponse),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Cluster not found"),
    ),
)]
pub(crate) async fn list_cluster_operations(
    call: ReadCall,
    Id(cluster): Id,
    Params(filter): Params<KindQuery>,
) -> EndpointResult<ClusterOperationsResponse> {
    let found = clusters::operations(&call.control, &call.caller, &cluster, filter.kind(), filter.status()).await?;
    let message = if found.is_empty() { "No operations.".to_owned() } else { request_table(&found) };
    Ok(JsonResponse::ok(ClusterOperationsResponse {
        operations: found.into_iter().map(request_info).collect(),
        message,
    }))
}
