//! What the engine tells the guest: who may log in, what the nodes of the cluster are called, and which volumes are there.
//!
//! [`check`] refuses what must not get into files, [`apply`] writes them, [`State`] is what the guest remembers of it, so that
//! it needs the engine for nothing after a restart, and [`opens`] decides about a key. The user's own files stay his.

mod apply;
mod check;
pub(crate) mod files;
mod keys;
mod links;
mod state;

pub(crate) use apply::apply;
pub(crate) use check::check;
pub(crate) use keys::opens;
pub(crate) use state::{State, directory, image, remember_image};
