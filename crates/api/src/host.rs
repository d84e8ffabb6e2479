//! The host and its GPUs, as administrators of the engine see them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The health of a GPU; only a GPU in good health is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum GpuHealth {
    Good,
    Bad,
    Recovering,
    Fatal,
}

/// A GPU that an instance has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceGpuInfo {
    /// ID of the GPU.
    pub id: String,
    /// Its model, as in the names of types.
    pub model: String,
    /// Whether it is declared by the operator and does not exist.
    pub simulated: bool,
    /// Its health.
    pub health: GpuHealth,
    /// What is wrong with it; null when nothing is.
    pub reason: Option<String>,
    /// Version of its driver; null when unknown.
    pub driver_version: Option<String>,
    /// Its memory in GiB; null when unknown.
    pub memory_gb: Option<u64>,
}

/// A GPU of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuInfo {
    /// ID of the GPU.
    pub id: String,
    /// Its model, as in the names of types.
    pub model: String,
    /// Whether it is declared by the operator and does not exist.
    pub simulated: bool,
    /// Its health.
    pub health: GpuHealth,
    /// What is or was wrong with it; null when nothing is.
    pub reason: Option<String>,
    /// Since when; null in good health.
    pub since: Option<String>,
    /// Whether an operator drained it.
    pub drained: bool,
    /// Why it is not offered; null while it is.
    pub withheld: Option<String>,
    /// ID of the instance that has it; null while it has no owner.
    pub instance_id: Option<String>,
    /// ID of the cluster of that instance.
    pub cluster_id: Option<String>,
    /// ID of the GPU that it is a slice of; null for a whole one.
    pub parent: Option<String>,
    /// Address on the PCI bus.
    pub bus_id: Option<String>,
    /// Version of its driver; null when unknown.
    pub driver_version: Option<String>,
    /// Version of CUDA that the driver supports; null when unknown.
    pub cuda_version: Option<String>,
    /// Its memory in bytes; null when unknown.
    pub memory_bytes: Option<u64>,
    /// Used memory in bytes.
    pub memory_used_bytes: Option<u64>,
    /// Degrees Celsius.
    pub temperature_celsius: Option<u32>,
    /// Watts.
    pub power_watts: Option<f64>,
    /// How busy it is, in percent.
    pub utilisation_percent: Option<u32>,
    /// Memory errors since its driver was loaded that could not be corrected.
    pub uncorrected_errors: Option<u64>,
    /// The same over its whole life.
    pub uncorrected_errors_ever: Option<u64>,
}

/// Response for GET /admin/gpu/list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuListResponse {
    /// The GPUs.
    pub gpus: Vec<GpuInfo>,
    /// The list as a table.
    pub message: String,
}

/// The host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostInfo {
    /// Whether it is drained and takes no new claims.
    pub drained: bool,
    /// The reason, if one was given.
    pub drain_reason: Option<String>,
    /// Since when.
    pub drained_since: Option<String>,
    /// CPU cores for instances.
    pub cpus: f64,
    /// CPU cores that instances have.
    pub cpus_held: f64,
    /// Memory for instances in bytes.
    pub memory_bytes: u64,
    /// Memory that instances have, in bytes.
    pub memory_held_bytes: u64,
    /// Bytes available for all volumes; null when the disk cannot be read.
    pub storage_bytes: Option<u64>,
    /// Bytes allocated to volumes.
    pub storage_promised_bytes: u64,
    /// Its GPUs.
    pub gpus: Vec<GpuInfo>,
}

/// Response for GET /admin/host/info.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostInfoResponse {
    /// The host.
    pub host: HostInfo,
    /// The same as text.
    pub message: String,
}

/// Request body for POST /admin/host/drain and POST /admin/gpu/drain/{gpu_id}.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// The reason, shown to the owners of waiting claims.
    #[schema(max_length = 200)]
    pub reason: Option<String>,
}
