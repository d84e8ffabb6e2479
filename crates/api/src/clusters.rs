//! Clusters, their instances and the instance types.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::host::InstanceGpuInfo;

/// Request body for POST /cluster/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterCreateRestRequest {
    /// Type of the instances, for example 8xH100; GET /cluster/types lists the types.
    #[schema(min_length = 1, max_length = 100)]
    pub instance_type: String,
    /// SSH public keys for the nodes, besides the saved ones of the user and the organization.
    #[schema(max_items = 100, default = json!([]))]
    pub public_keys: Option<Vec<String>>,
    /// Number of nodes.
    #[schema(minimum = 1, maximum = 1000, default = 1)]
    pub num_nodes: Option<u32>,
    /// Name of the cluster, unique within the user or organization; generated when absent.
    pub tp_cluster_name: Option<String>,
    /// Container image to start the nodes from; also accepted as `experimental_container`.
    #[schema(max_length = 1024)]
    pub container: Option<String>,
    /// Whether destroying the cluster is refused until this is turned off.
    #[schema(default = false)]
    pub deletion_protection: Option<bool>,
    /// How many jobs may run on the cluster at the same time; others wait in order.
    #[schema(minimum = 1, maximum = 1000, default = 1)]
    pub jobs_parallel: Option<u32>,
    /// Whether new keys among `public_keys` are saved to the user's profile.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub save_keys: bool,
}

fn yes() -> bool {
    true
}

/// Response for POST /cluster/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterCreateRestResponse {
    /// TensorPool cluster ID
    pub cluster_id: String,
    /// IDs of the instances that the cluster will have
    #[serde(default)]
    pub instance_ids: Vec<String>,
    /// Request ID for tracking
    pub request_id: Option<String>,
    /// Status message
    pub message: String,
}

/// Response for DELETE /cluster/{cluster}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterDestroyRestResponse {
    /// TensorPool cluster ID
    pub cluster_id: String,
    /// Request ID for tracking
    pub request_id: Option<String>,
    /// Status message
    pub message: String,
}

/// Response for POST /cluster/restart/{cluster}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterRestartRestResponse {
    /// TensorPool cluster ID
    pub cluster_id: String,
    /// Request ID for tracking
    pub request_id: Option<String>,
    /// Status message
    pub message: String,
}

/// Request body for PATCH /cluster/edit/{cluster}; fields that are absent or null stay unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterEditRequest {
    /// New name, unique within the user or organization; also accepted as `tp_cluster_name`.
    pub cluster_name: Option<String>,
    /// Whether destroying the cluster is refused.
    pub deletion_protection: Option<bool>,
}

/// Response for an edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EditResponse {
    /// Status message
    pub message: String,
    /// Request ID for tracking
    pub request_id: Option<String>,
}

/// The state of a cluster or an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum ClusterStatus {
    Pending,
    Provisioning,
    Configuring,
    Running,
    Restarting,
    Destroying,
    Destroyed,
    Failed,
}

/// One instance of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceInfo {
    /// TensorPool instance ID
    pub id: String,
    /// Its state.
    pub status: ClusterStatus,
    /// Its host name: the cluster's ID and the number of the node.
    pub name: String,
    /// Its address in the cluster, once it has one.
    pub private_ip: Option<String>,
    /// The user to log in as.
    pub ssh_user: Option<Cow<'static, str>>,
    /// The command that opens a shell on it, once it runs.
    pub ssh_command: Option<String>,
    /// The GPUs that it has.
    #[serde(default)]
    pub gpus: Vec<InstanceGpuInfo>,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterInfo {
    /// TensorPool cluster ID
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its state.
    pub status: ClusterStatus,
    /// Type of its instances.
    pub instance_type: String,
    /// Number of its instances.
    pub num_nodes: u32,
    /// Its instances.
    pub instances: Vec<InstanceInfo>,
    /// IDs of the volumes that are attached to it.
    pub storage: Vec<String>,
    /// Whether destroying it is refused.
    pub deletion_protection: bool,
    /// What the whole cluster costs per hour, in US dollars.
    pub hourly_rate: f64,
    /// When it was requested.
    pub created_at: String,
    /// ID of the user who created it.
    pub owner: String,
    /// ID of the organization it belongs to.
    pub org_id: Option<String>,
    /// Container image; null for the engine's default.
    pub container: Option<String>,
    /// Exact name of that image, with its digest, once it is known; all nodes run it, also after a restart.
    pub image: Option<String>,
    /// What its state waits for, since when, until when; or why it failed.
    pub explanation: Option<String>,
    /// Whether its GPUs are declared by the operator and do not exist.
    pub simulated_gpus: bool,
}

/// Response for GET /cluster/list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterListResponse {
    /// The clusters, newest first.
    pub clusters: Vec<ClusterInfo>,
    /// Pass this as `cursor` to get the next page; null at the end.
    pub next_cursor: Option<String>,
    /// The list as a table.
    pub message: String,
}

/// Response for GET /cluster/info/{cluster}.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterInfoResponse {
    /// The cluster.
    pub cluster_info: ClusterInfo,
    /// The same as text.
    pub message: String,
}

/// A price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QuoteResponse {
    /// US dollars per hour.
    pub hourly_rate: f64,
    /// The same as text.
    pub message: String,
}

/// One type of instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceTypeInfo {
    /// What to give as `instance_type`.
    pub name: String,
    /// CPU cores.
    pub cpus: f64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Number of GPUs.
    pub gpus: u32,
    /// Model of the GPUs; null without GPUs.
    pub gpu_model: Option<String>,
    /// US dollars per hour and instance.
    pub hourly_rate: f64,
    /// Whether its GPUs are declared by the operator and do not exist.
    pub simulated: bool,
    /// How many instances of this type a new cluster would get at once; reserved capacity does not count.
    #[serde(default)]
    pub available: u64,
}

/// Response for GET /cluster/types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstanceTypeListResponse {
    /// The types, CPU types first.
    pub types: Vec<InstanceTypeInfo>,
    /// The list as a table.
    pub message: String,
}
