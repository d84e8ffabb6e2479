//! Clusters, their instances and the host they run on: states, placement, instance types, GPUs and container images.

pub mod capacity;
pub mod catalogue;
pub mod clusters;
pub mod gpus;
pub mod host_binding;
pub mod images;
pub mod instance_end;
pub mod lifecycle;
pub mod line;
