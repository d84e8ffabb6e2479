//! Administration of the engine: users, API keys, grants of balance and the event log.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request body for POST /admin/user/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdminUserCreateRequest {
    /// E-mail address, unique on this engine.
    #[schema(max_length = 254)]
    pub email: String,
    /// Organization to add the user to; an unknown one is made, and its first user administers it.
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
    /// The user's API key; it is shown this once.
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
    /// Whether the user has been shut out.
    pub disabled: bool,
    /// Balance of the organization, or of the user without one, in US dollars.
    pub balance: f64,
    /// When the user was made.
    pub created_at: String,
}

/// Response for GET /admin/user/list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminUserListResponse {
    /// The users, newest first.
    pub users: Vec<AdminUserInfo>,
    /// Give this as `cursor` to go on; null at the end.
    pub next_cursor: Option<String>,
    /// The list as a table.
    pub message: String,
}

/// Request body for POST /admin/key/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// The API key; it is shown this once.
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
    /// When it was made.
    pub created_at: String,
    /// When it was revoked; null while it is good.
    pub revoked_at: Option<String>,
}

/// Response for GET /admin/key/list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdminKeyListResponse {
    /// The keys, newest first.
    pub keys: Vec<AdminKeyInfo>,
    /// Give this as `cursor` to go on; null at the end.
    pub next_cursor: Option<String>,
    /// The list as a table.
    pub message: String,
}

/// Request body for POST /admin/grant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminGrantRequest {
    /// ID of the user or organization.
    pub to: String,
    /// US dollars; a negative amount takes balance back.
    #[schema(minimum = -1000000000, maximum = 1000000000)]
    pub amount: f64,
    /// Why, for the ledger.
    #[schema(max_length = 200)]
    pub description: Option<String>,
}

/// Response for POST /admin/grant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AdminGrantResponse {
    /// ID of the user or organization whose balance it is.
    pub account: String,
    /// The balance now, in US dollars.
    pub balance: f64,
    /// Status message
    pub message: String,
}

/// One line of the event log: who did what to which object, when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventInfo {
    /// Its number; numbers only grow.
    pub number: i64,
    /// When it happened.
    pub at: String,
    /// Who did it: the ID of a user, or a part of the engine.
    pub actor: String,
    /// ID of what it happened to.
    pub object: String,
    /// What happened.
    pub verb: String,
    /// What else there is to know.
    pub detail: serde_json::Value,
}

/// Response for GET /admin/event/list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventListResponse {
    /// The events, oldest first.
    pub events: Vec<EventInfo>,
    /// Give this as `after` to go on.
    pub next_after: i64,
    /// The list as a table.
    pub message: String,
}
