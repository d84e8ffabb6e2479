//! The health of the engine, and what the command-line client reports about itself before each command.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Response for GET /healthz.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthzResponse {
    /// Always `ok`; any other state is an error response.
    pub status: String,
    /// Version of the engine.
    pub version: String,
}

/// Request body for POST /health: the client and the system it runs on. All fields are optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthRequest {
    /// Version of the client.
    pub package_version: Option<String>,
    /// The host of the client: system, node, release, version, machine, processor.
    #[schema(max_items = 16)]
    pub uname: Option<Vec<String>>,
    /// Version of Python.
    pub python_version: Option<String>,
    /// Implementation of Python.
    pub python_implementation: Option<String>,
    /// Compiler that built Python.
    pub python_compiler: Option<String>,
    /// Build number and date of Python.
    #[schema(max_items = 16)]
    pub python_build: Option<Vec<String>>,
}

/// A response that is only a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MessageResponse {
    /// Text for the user; null when there is none.
    #[schema(required = true)]
    pub message: Option<String>,
}
