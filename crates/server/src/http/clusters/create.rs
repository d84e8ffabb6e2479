//! POST /cluster/create

use tarn_api::clusters::{ClusterCreateRestRequest, ClusterCreateRestResponse};
use tarn_control::operations::clusters::{self, NewCluster};

use crate::http::input::body::Body;
use crate::http::input::call::Call;
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
