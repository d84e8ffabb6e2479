//! GET /cluster/list

use tarn_api::clusters::ClusterListResponse;
use tarn_control::Control;
use tarn_control::operations::clusters;
use utoipa::IntoParams;

use super::view;
use crate::http::input::call::ReadCall;
use crate::http::input::listing::ListQuery;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::append_next_page;

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
