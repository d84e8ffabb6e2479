//! The configuration that the engine sends: who may log in, the names of the nodes of the cluster, and the volumes.
//!
//! [`check_configuration`] rejects what must not get into files, [`apply_configuration`] writes the files, [`State`] is
//! what the guest stores, so that it needs the engine for nothing after a restart, and [`is_key_authorized`] decides
//! about a key. Files of the user are not changed.

mod apply;
mod check;
mod state;

pub(crate) use apply::apply_configuration;
pub(crate) use check::check_configuration;
pub(crate) use state::is_key_authorized;
pub(crate) use state::{State, load_image, open_state_directory, save_image};
