//! Whether the engine is there, and what the command-line client tells about itself before each command.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer of GET /healthz.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthzResponse {
    /// Always `ok`; anything else comes as an error.
    pub status: String,
    /// Version of the engine.
    pub version: String,
}

/// Request body for POST /health: what the client is and what it runs on. Nothing in it is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthRequest {
    /// Version of the client.
    pub package_version: Option<String>,
    /// The client's machine: system, node, release, version, machine, processor.
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

/// An answer that is only a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MessageResponse {
    /// For a person; null when there is nothing to say.
    #[schema(required = true)]
    pub message: Option<String>,
}
