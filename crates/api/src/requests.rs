//! Asynchronous requests: what a 202 leaves behind and how far it is.

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

/// How far a request is; COMPLETED and FAILED are final.
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
    /// How far it is.
    pub status: RequestStatus,
    /// When it was accepted.
    pub created_at: String,
    /// When it ended; null while it goes on.
    pub ended_at: Option<String>,
    /// ID of the cluster or volume it is about.
    pub object_id: Option<String>,
    /// What it waits for or how it ended, for a person.
    pub external_message: Option<String>,
    /// The same text, under the name that clients read first.
    pub message: Option<String>,
}

/// Response for GET /request/list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestListResponse {
    /// The requests, newest first.
    pub requests: Vec<RequestInfoResponse>,
    /// Give this as `cursor` to go on; null at the end.
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
