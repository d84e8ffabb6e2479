//! The endpoints that create, change and destroy clusters.

use tarn_api::clusters::{
    ClusterCreateRestRequest, ClusterCreateRestResponse, ClusterDestroyRestResponse, ClusterEditRequest,
    ClusterRestartRestResponse, EditResponse,
};
use tarn_control::operations::clusters::{self, ClusterEdit, NewCluster};

use crate::http::input::body::Body;
use crate::http::input::call::{Call, ChangeCall};
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

impl Body for ClusterCreateRestRequest {
    const ALIASES: &'static [(&'static str, &'static str)] = &[("experimental_container", "container")];
}

/// Create a cluster
///
/// Create a GPU or CPU cluster. Returns 202 immediately with request ID. Poll /request/info/{request_id} to track
/// provisioning progress. A cluster that does not fit now waits in the capacity queue.
#[utoipa::path(
    post,
    path = "/cluster/create",
    operation_id = "cluster_create",
    request_body = ClusterCreateRestRequest,
    responses(
        (status = 202, description = "Cluster creation initiated", body = ClusterCreateRestResponse),
        (status = 400, description = "Unknown instance type, invalid name, key or image, or more than fits on the host"),
        (status = 402, description = "Insufficient balance"),
        (status = 409, description = "Name taken, or too many saved SSH keys"),
    ),
)]
pub(crate) async fn create_cluster(call: Call<ClusterCreateRestRequest>) -> EndpointResult<ClusterCreateRestResponse> {
    let body = call.body;
    let new = NewCluster {
        instance_type: body.instance_type,
        public_keys: body.public_keys.unwrap_or_default(),
        num_nodes: body.num_nodes,
        name: body.tp_cluster_name,
        container: body.container,
        deletion_protection: body.deletion_protection.unwrap_or(false),
        jobs_parallel: body.jobs_parallel,
        save_keys: body.save_keys,
    };
    let accepted = clusters::create(&call.control, &call.caller, new).await?;
    Ok(JsonResponse::accepted(ClusterCreateRestResponse {
        cluster_id: accepted.cluster.into(),
        instance_ids: accepted.instances.into_iter().map(Into::into).collect(),
        request_id: Some(accepted.request.into()),
        message: accepted.message,
    }))
}

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
