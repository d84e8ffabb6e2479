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

/// Response for GET /user/ssh-key/challenge/{key_id}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SSHKeyChallengeResponse {
    /// The text to sign, without a line end.
    pub challenge: String,
    /// The namespace to sign it in: `ssh-keygen -Y sign -f KEY -n NAMESPACE`.
    pub namespace: String,
    /// Until when a signature of it is accepted.
    pub expires_at: String,
    /// What to do with it.
    pub message: String,
}

/// Request body for POST /user/ssh-key/prove/{key_id}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SSHKeyProveRequest {
    /// The challenge that was signed.
    #[schema(max_length = 256)]
    pub challenge: String,
    /// The signature as `ssh-keygen -Y sign` writes it, beginning with `-----BEGIN SSH SIGNATURE-----`.
    #[schema(max_length = 16384)]
    pub signature: String,
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
