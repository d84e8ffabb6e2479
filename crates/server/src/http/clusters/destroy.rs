//! DELETE /cluster/{cluster}

use axum::extract::State;
use tarn_api::clusters::ClusterDestroyRestResponse;
use tarn_control::operations::clusters;

use crate::App;
use crate::http::input::call::IdempotentCaller;
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
    tag = "cluster",
    params(("cluster" = String, Path)),
    responses(
        (status = 202, description = "Cluster destruction initiated", body = ClusterDestroyRestResponse),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Cluster not found"),
        (status = 409, description = "Deletion protection enabled or instances not RUNNING"),
        (status = 422, description = "Validation Error"),
        (status = 500, description = "Internal server error"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn destroy_cluster(
    State(app): State<App>,
    IdempotentCaller(caller): IdempotentCaller,
    Id(cluster): Id,
) -> EndpointResult<ClusterDestroyRestResponse> {
    let accepted = clusters::destroy(&app.control, &caller, &cluster).await?;
    Ok(JsonResponse::accepted(ClusterDestroyRestResponse {
        cluster_id: accepted.cluster.into(),
        request_id: Some(accepted.request.into()),
        message: accepted.message,
    }))
}
