//! The endpoints about the host and its GPUs, a file each, for administrators of the engine. Who is one is decided in `control`.

pub(crate) mod clear_gpu;
pub(crate) mod drain;
pub(crate) mod drain_gpu;
pub(crate) mod info;
pub(crate) mod list_gpus;
pub(crate) mod undrain;
pub(crate) mod undrain_gpu;
pub(crate) mod view;
