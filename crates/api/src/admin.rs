//! Administration of the engine: users, API keys, grants of balance, limits and the event log.

use serde::{Deserialize, Serialize};
use tarn_base::Edit;
use utoipa::ToSchema;

/// Request body for POST /admin/user/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminUserCreateRequest {
    /// E-mail address, unique on this engine.
    #[schema(max_length = 254)]
    pub email: String,
    /// Organization to add the user to; an unknown one is created, and its first user administers it.
    #[schema(max_length = 100)]
    pub org_name: Option<String>,
}

/// Response for POST /admin/user/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdminUserCreateResponse {
    /// ID of the user.
    pub user_id: String,
    /// ID of the organization; null for a user without one.
    pub org_id: Option<String>,
    /// The user's API key; it is shown only once.
    pub api_key: String,
    /// Status message
    pub message: String,
}

/// A user, as administrators see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminUserInfo {
    /// ID of the user.
    pub user_id: String,
    /// E-mail address.
    pub email: String,
    /// ID of the organization; null for a user without one.
    pub org_id: Option<String>,
    /// Name of the organization; null for a user without one.
    pub org_name: Option<String>,
    /// Whether the user administers that organization.
    pub org_admin: bool,
    /// Whether the user administers this engine.
    pub engine_admin: bool,
    /// Whether the user is disabled.
    pub disabled: bool,
    /// Balance of the organization, or of the user without one, in US dollars.
    pub balance: f64,
    /// When the user was created.
    pub created_at: String,
}

/// Response for GET /admin/user/list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminUserListResponse {
    /// The users, newest first.
    pub users: Vec<AdminUserInfo>,
    /// Pass this as `cursor` to get the next page; null at the end.
    pub next_cursor: Option<String>,
    /// The list as a table.
    pub message: String,
}

/// Request body for POST /admin/key/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminKeyCreateRequest {
    /// ID of the user who gets the key.
    pub user_id: String,
}

/// Response for POST /admin/key/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdminKeyCreateResponse {
    /// ID of the key, by which it can be revoked.
    pub key_id: String,
    /// ID of the user.
    pub user_id: String,
    /// The API key; it is shown only once.
    pub api_key: String,
    /// Status message
    pub message: String,
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdminKeyInfo {
    /// ID of the key.
    pub key_id: String,
    /// ID of the user.
    pub user_id: String,
    /// When it was created.
    pub created_at: String,
    /// When it was revoked; null while it is valid.
    pub revoked_at: Option<String>,
    /// When it was last used, up to a minute late; null if it was not used since the engine records it.
    pub last_used_at: Option<String>,
}

/// Response for GET /admin/key/list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdminKeyListResponse {
    /// The keys, newest first.
    pub keys: Vec<AdminKeyInfo>,
    /// Pass this as `cursor` to get the next page; null at the end.
    pub next_cursor: Option<String>,
    /// The list as a table.
    pub message: String,
}

/// Request body for POST /admin/grant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminGrantRequest {
    /// ID of the user or organization.
    pub to: String,
    /// US dollars; a negative amount takes balance back.
    #[schema(minimum = -1000000000, maximum = 1000000000)]
    pub amount: f64,
    /// The reason, for the ledger.
    #[schema(max_length = 200)]
    pub description: Option<String>,
}

/// Response for POST /admin/grant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminGrantResponse {
    /// ID of the user or organization whose balance it is.
    pub account: String,
    /// The balance after the grant, in US dollars.
    pub balance: f64,
    /// Status message
    pub message: String,
}

/// One line of the event log: who did what to which object, when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventInfo {
    /// The number of the event; numbers increase.
    pub number: i64,
    /// When it happened.
    pub at: String,
    /// Who did it: the ID of a user, or a part of the engine.
    pub actor: String,
    /// ID of the object.
    pub object: String,
    /// What happened.
    pub verb: String,
    /// Further details.
    pub detail: serde_json::Value,
    /// The API key or the S3 key of the caller; absent for what the engine did by itself.
    pub key_id: Option<String>,
    /// The address of the client.
    pub address: Option<String>,
    /// The ID of the call, which its response has as `X-Request-ID`.
    pub call_id: Option<String>,
}

/// Response for GET /admin/event/list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventListResponse {
    /// The events, oldest first.
    pub events: Vec<EventInfo>,
    /// Pass this as `after` to get the next page.
    pub next_after: i64,
    /// The list as a table.
    pub message: String,
}

/// The limits of all resources; null is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitSet {
    /// Nodes of clusters.
    pub instances: Option<u64>,
    /// CPUs of all nodes.
    pub cpus: Option<f64>,
    /// GPUs of all nodes.
    pub gpus: Option<u64>,
    /// Gigabytes of all volumes.
    pub volume_gb: Option<u64>,
    /// Gigabytes of 10^9 bytes of all objects.
    pub object_gb: Option<f64>,
    /// Clusters that wait for capacity; 0 is no limit.
    pub waiting: Option<u64>,
    /// Gigabytes of 10^9 bytes of the files, logs and outputs of all jobs.
    pub job_gb: Option<f64>,
}

/// What is used of all limited resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitUsage {
    /// Nodes of clusters; waiting nodes count, too.
    pub instances: u64,
    /// CPUs of all nodes.
    pub cpus: f64,
    /// GPUs of all nodes.
    pub gpus: u64,
    /// Gigabytes of all volumes.
    pub volume_gb: u64,
    /// Gigabytes of 10^9 bytes of all objects.
    pub object_gb: f64,
    /// Clusters that wait for capacity.
    pub waiting: u64,
    /// Gigabytes of 10^9 bytes of the files, logs and outputs of all jobs.
    pub job_gb: f64,
}

/// The limits of an organization, or of a user without one, in lists and as the response of the calls about one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminLimitsInfo {
    /// ID of the organization, or of the user without one.
    pub scope: String,
    /// What an administrator set; null is the default of the configuration.
    pub own: LimitSet,
    /// The limits in effect.
    pub limits: LimitSet,
    /// What it uses.
    pub used: LimitUsage,
    /// The same as text.
    pub message: String,
}

/// Response for GET /admin/limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminLimitsListResponse {
    /// All organizations and users with their own limits, in the order of their IDs.
    pub limits: Vec<AdminLimitsInfo>,
    /// Give this as `after` to go on; null at the end.
    pub next_after: Option<String>,
    /// The list as a table.
    pub message: String,
}

/// Request body for PATCH /admin/limits/{scope}; absent fields stay unchanged, and null restores the default of the
/// configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminLimitsPatch {
    /// Nodes of clusters.
    #[serde(default, skip_serializing_if = "Edit::is_keep")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1000000000)]
    pub instances: Edit<u64>,
    /// CPUs of all nodes.
    #[serde(default, skip_serializing_if = "Edit::is_keep")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1000000000)]
    pub cpus: Edit<f64>,
    /// GPUs of all nodes.
    #[serde(default, skip_serializing_if = "Edit::is_keep")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1000000000)]
    pub gpus: Edit<u64>,
    /// Gigabytes of all volumes.
    #[serde(default, skip_serializing_if = "Edit::is_keep")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1000000000)]
    pub volume_gb: Edit<u64>,
    /// Gigabytes of 10^9 bytes of all objects.
    #[serde(default, skip_serializing_if = "Edit::is_keep")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1000000000)]
    pub object_gb: Edit<f64>,
    /// Clusters that wait for capacity; 0 is no limit.
    #[serde(default, skip_serializing_if = "Edit::is_keep")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1000000000)]
    pub waiting: Edit<u64>,
    /// Gigabytes of 10^9 bytes of the files, logs and outputs of all jobs.
    #[serde(default, skip_serializing_if = "Edit::is_keep")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1000000000)]
    pub job_gb: Edit<f64>,
}
