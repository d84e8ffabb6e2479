//! The endpoints that show clusters and the operations on them.

use tarn_api::clusters::{ClusterInfoResponse, ClusterListResponse};
use tarn_api::requests::ClusterOperationsResponse;
use tarn_control::Control;
use tarn_control::operations::clusters;
use utoipa::IntoParams;

use super::view;
use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::input::listing::ListQuery;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::append_next_page;
use crate::http::requests::{KindQuery, request_info, request_table};

/// The parameters besides those of every list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct InstancesQuery {
    /// Show a table of instances instead of clusters.
    #[param(required = false, default = false)]
    instances: bool,
}

impl FromQuery for (ListQuery, InstancesQuery) {
    fn from_query(fields: &mut Fields) -> Self {
        (ListQuery::from_query(fields), InstancesQuery { instances: fields.flag("instances") })
    }
}

/// List clusters
///
/// The clusters that the caller created or, with include_org, all clusters of the organization, newest first.
#[utoipa::path(
    get,
    path = "/cluster/list",
    operation_id = "cluster_list",
    params(ListQuery, InstancesQuery),
    responses(
        (status = 200, description = "The clusters", body = ClusterListResponse),
        (status = 400, description = "Invalid cursor"),
    ),
)]
pub(crate) async fn list_clusters(
    call: ReadCall,
    Params((listing, shown)): Params<(ListQuery, InstancesQuery)>,
) -> EndpointResult<ClusterListResponse> {
    let page = clusters::list(&call.control, &call.caller, listing.into()).await?;
    let mut message = match (page.items.as_slice(), shown.instances) {
        ([], _) => no_clusters_text(&call.control),
        (items, false) => view::cluster_table(items),
        (items, true) => view::instance_table(items),
    };
    append_next_page(&mut message, page.next_cursor.as_deref());
    let clusters = page.items.into_iter().map(|found| view::cluster_info(&call.control, found)).collect();
    Ok(JsonResponse::ok(ClusterListResponse { clusters, next_cursor: page.next_cursor, message }))
}

fn no_clusters_text(control: &Control) -> String {
    match clusters::catalogue(control).types().first() {
        Some(kind) => format!("No clusters. Create one with `tp cluster create {}`.", kind.name),
        None => "No clusters.".to_owned(),
    }
}

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
