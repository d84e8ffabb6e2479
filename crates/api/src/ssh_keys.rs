//! Saved SSH public keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request body for POST /user/ssh-key/add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SSHKeyCreateRequest {
    /// The key in OpenSSH's one-line format, as in a .pub file.
    #[schema(max_length = 16384)]
    pub public_key: String,
    /// Name of the key; the e-mail address of the user when absent.
    #[schema(max_length = 100)]
    pub name: Option<String>,
}

/// Response for POST /user/ssh-key/add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SSHKeyCreateResponse {
    /// SSH key ID
    pub key_id: String,
    /// Status message
    pub message: String,
}

/// A saved key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SSHKeyInfo {
    /// SSH key ID
    pub id: String,
    /// Name of the key.
    pub name: String,
    /// The key in OpenSSH's one-line format.
    pub public_key: String,
    /// The SHA-256 fingerprint, as `ssh-keygen -l` shows it.
    pub fingerprint: String,
    /// When it was saved.
    pub created_at: String,
    /// ID of the user who saved it.
    pub owner: String,
    /// ID of that user's organization.
    pub org_id: Option<String>,
}

/// Response for GET /user/ssh-key/list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SSHKeyListResponse {
    /// The keys, oldest first.
    pub keys: Vec<SSHKeyInfo>,
    /// The list as a table.
    pub message: String,
}
