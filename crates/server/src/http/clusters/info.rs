//! GET /cluster/info/{cluster}

use axum::extract::State;
use tarn_api::clusters::ClusterInfoResponse;
use tarn_control::operations::clusters;

use super::view;
use crate::App;
use crate::http::input::id::Id;
use crate::http::middleware::authenticate::Authenticated;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Cluster details
///
/// Everything about one cluster, by ID or name.
#[utoipa::path(
    get,
    path = "/cluster/info/{cluster}",
    operation_id = "cluster_info",
    tag = "cluster",
    params(("cluster" = String, Path)),
    responses(
        (status = 200, description = "The cluster", body = ClusterInfoResponse),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Cluster not found"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn get_cluster(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(cluster): Id,
) -> EndpointResult<ClusterInfoResponse> {
    let found = clusters::info(&app.control, &caller, &cluster).await?;
    let message = view::cluster_text(&found);
    Ok(JsonResponse::ok(ClusterInfoResponse { cluster_info: view::cluster_info(&app.control, found), message }))
}
