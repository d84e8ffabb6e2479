//! Storage volumes and their attachments to clusters.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request body for POST /storage/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageCreateRequest {
    /// Size in GB; also accepted as `size_gb`.
    #[schema(minimum = 1, maximum = 1000000)]
    pub size: u64,
    /// Name of the volume, unique within the user or organization; generated when absent; also accepted as
    /// `tp_storage_name`.
    pub name: Option<String>,
    /// Whether destroying the volume is refused until this is turned off.
    #[serde(default)]
    #[schema(default = false)]
    pub deletion_protection: bool,
}

/// Response for POST /storage/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageCreateRestResponse {
    /// TensorPool storage ID
    pub storage_id: String,
    /// Request ID for tracking
    pub request_id: Option<String>,
    /// Status message
    pub message: String,
}

/// Response for DELETE /storage/{storage_id}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageDestroyRestResponse {
    /// TensorPool storage ID
    pub storage_id: String,
    /// Request ID for tracking
    pub request_id: Option<String>,
    /// Status message
    pub message: String,
}

/// Request body for PATCH /storage/edit/{storage_id}; fields that are absent or null stay unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageEditRequest {
    /// New name, unique within the user or organization.
    pub tp_storage_name: Option<String>,
    /// New size in GB; a volume can only grow.
    #[schema(minimum = 1, maximum = 1000000)]
    pub size_gb: Option<u64>,
    /// Whether destroying the volume is refused.
    pub deletion_protection: Option<bool>,
}

/// Request body for POST /storage/attach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageAttachRestRequest {
    /// Storage ID to attach (must start with 's-')
    pub storage_id: String,
    /// Cluster ID(s) to attach storage to
    #[schema(min_items = 1, max_items = 1)]
    pub cluster_ids: Vec<String>,
    /// Attach without restarting the nodes, where the engine can do that
    #[serde(default)]
    #[schema(default = false)]
    pub live: bool,
}

/// Response for POST /storage/attach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageAttachRestResponse {
    /// TensorPool storage ID
    pub storage_id: String,
    /// Attached cluster IDs
    #[serde(default)]
    pub cluster_ids: Vec<String>,
    /// Request IDs for tracking
    #[serde(default)]
    pub request_ids: Vec<String>,
    /// Status message
    pub message: String,
}

/// Request body for POST /storage/detach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageDetachRestRequest {
    /// Storage ID to detach (must start with 's-')
    pub storage_id: String,
    /// Cluster ID to detach storage from
    pub cluster_id: String,
    /// Detach without restarting the nodes, where the engine can do that; refused while processes use the volume
    #[serde(default)]
    #[schema(default = false)]
    pub live: bool,
}

/// Response for POST /storage/detach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageDetachRestResponse {
    /// TensorPool storage ID
    pub storage_id: String,
    /// TensorPool cluster ID
    pub cluster_id: String,
    /// Request ID for tracking
    pub request_id: Option<String>,
    /// Status message
    pub message: String,
}

/// The state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum StorageStatus {
    Pending,
    Creating,
    Ready,
    Resizing,
    Destroying,
    Destroyed,
    Failed,
}

/// The state of an attachment; a detached volume has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum AttachmentStatus {
    Attaching,
    Attached,
    Detaching,
}

/// A volume on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachmentInfo {
    /// TensorPool cluster ID
    pub cluster_id: String,
    /// Its state.
    pub status: AttachmentStatus,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StorageInfo {
    /// TensorPool storage ID
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its state.
    pub status: StorageStatus,
    /// Its size in GB of 10^9 bytes.
    pub size_gb: u64,
    /// Used size in GB, measured a few seconds ago; null when unknown.
    pub used_gb: Option<f64>,
    /// What it costs per hour, in US dollars.
    pub hourly_rate: f64,
    /// IDs of the clusters it is attached to.
    pub attached_clusters: Vec<String>,
    /// The same with the state of each attachment.
    pub attachments: Vec<AttachmentInfo>,
    /// Whether destroying it is refused.
    pub deletion_protection: bool,
    /// When it was requested.
    pub created_at: String,
    /// ID of the user who created it.
    pub owner: String,
    /// ID of the organization it belongs to.
    pub org_id: Option<String>,
    /// What its state waits for, since when, until when; or why it failed.
    pub explanation: Option<String>,
}

/// Response for GET /storage/list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StorageListResponse {
    /// The volumes, newest first.
    pub volumes: Vec<StorageInfo>,
    /// Pass this as `cursor` to get the next page; null at the end.
    pub next_cursor: Option<String>,
    /// The list as a table.
    pub message: String,
}

/// Response for GET /storage/info/{storage_id}.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StorageInfoResponse {
    /// The volume.
    pub storage_info: StorageInfo,
    /// The same as text.
    pub message: String,
}
