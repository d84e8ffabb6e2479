//! PATCH /cluster/edit/{cluster}

use tarn_api::clusters::{ClusterEditRequest, EditResponse};
use tarn_control::operations::clusters::{self, ClusterEdit};

use crate::http::input::body::Body;
use crate::http::input::call::Call;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

impl Body for ClusterEditRequest {
    const ALIASES: &'static [(&'static str, &'static str)] = &[("tp_cluster_name", "cluster_name")];
}

/// Edit a cluster
///
/// Change the name or the deletion protection of a cluster immediately.
#[utoipa::path(
    patch,
    path = "/cluster/edit/{cluster}",
    operation_id = "cluster_edit",
    params(("cluster" = String, Path)),
    request_body = ClusterEditRequest,
    responses(
        (status = 202, description = "Cluster changed", body = EditResponse),
        (status = 400, description = "Nothing to change, or invalid name"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Cluster not found"),
        (status = 409, description = "Name taken, or cluster being destroyed"),
    ),
)]
pub(crate) async fn edit_cluster(Id(cluster): Id, call: Call<ClusterEditRequest>) -> EndpointResult<EditResponse> {
    let edit = ClusterEdit { name: call.body.cluster_name, deletion_protection: call.body.deletion_protection };
    let accepted = clusters::edit(&call.control, &call.caller, &cluster, edit).await?;
    Ok(JsonResponse::accepted(EditResponse { message: accepted.message, request_id: Some(accepted.request.into()) }))
}
