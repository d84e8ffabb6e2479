//! GET /cluster/operations/{cluster}

use axum::extract::State;
use tarn_api::requests::ClusterOperationsResponse;
use tarn_control::operations::clusters;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::id::Id;
use crate::http::query::Params;
use crate::http::requests::view::{self, KindQuery};

/// List operations on a cluster
///
/// The requests that concern a cluster, newest first, with optional type and status filters.
#[utoipa::path(
    get,
    path = "/cluster/operations/{cluster}",
    operation_id = "cluster_operations",
    tag = "cluster",
    params(("cluster" = String, Path), KindQuery),
    responses(
        (status = 200, description = "The operations", body = ClusterOperationsResponse),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Cluster not found"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn operations(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(cluster): Id,
    Params(filter): Params<KindQuery>,
) -> Outcome<ClusterOperationsResponse> {
    let found = clusters::operations(&app.control, &caller, &cluster, filter.kind(), filter.status()).await?;
    let message = if found.is_empty() { "No operations.".to_owned() } else { view::table(&found) };
    Ok(Answer::ok(ClusterOperationsResponse { operations: found.into_iter().map(view::info).collect(), message }))
}
