//! Logging in to an instance.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The operating system of the client; any case is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum SystemType {
    Windows,
    Linux,
    Darwin,
}

/// Response for GET /ssh/{instance_id}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SSHCommandResponse {
    /// The command to run; it needs no shell, and options may be appended.
    pub command: String,
    /// Text for the user; null when there is none.
    pub message: Option<String>,
}
