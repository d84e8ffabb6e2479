//! Asynchronous requests: the work behind a 202 and its progress.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum RequestType {
    ClusterClaim,
    ClusterRelease,
    ClusterEdit,
    ClusterRestart,
    StorageCreate,
    StorageDestroy,
    StorageAttach,
    StorageDetach,
    StorageEdit,
}

/// The progress of a request; COMPLETED and FAILED are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum RequestStatus {
    Pending,
    Processing,
    Completed,
    Failed,
    Retrying,
}

/// One request, in lists and as the response for GET /request/info/{request_id}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestInfoResponse {
    /// Request ID
    pub request_id: String,
    /// What it does.
    pub request_type: RequestType,
    /// Its progress.
    pub status: RequestStatus,
    /// When it was accepted.
    pub created_at: String,
    /// When it ended; null while it is in progress.
    pub ended_at: Option<String>,
    /// ID of the cluster or volume that it concerns.
    pub object_id: Option<String>,
    /// What it waits for, or how it ended.
    pub external_message: Option<String>,
    /// The same text, under the name that clients read first.
    pub message: Option<String>,
}

/// Response for GET /request/list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestListResponse {
    /// The requests, newest first.
    pub requests: Vec<RequestInfoResponse>,
    /// Pass this as `cursor` to get the next page; null at the end.
    pub next_cursor: Option<String>,
    /// The list as a table.
    pub message: String,
}

/// Response for GET /cluster/operations/{cluster}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterOperationsResponse {
    /// The requests that concern the cluster, newest first.
    pub operations: Vec<RequestInfoResponse>,
    /// The list as a table.
    pub message: String,
}
