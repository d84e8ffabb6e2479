//! Whether the engine is there. It has no tag in the founding documents.

#[allow(clippy::module_inception)]
pub(crate) mod health;
pub(crate) mod healthz;
