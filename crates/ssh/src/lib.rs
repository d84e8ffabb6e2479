//! The SSH server: turns SSH connections into link streams.
//!
//! The gateway of the engine and the SSH server of the guest both use this crate. It asks an [`Authorizer`] whether a
//! key may log in and which [`Target`] the connection gets, and dials that target once for every channel. It knows the
//! SSH protocol and its limits, and nothing of users, clusters, processes or files.
//!
//! Start reading at [`serve`]; `connection` handles the requests of a client, `channels` has the kinds of channels,
//! and `connection_limits` bounds connections and failed logins.

mod authorizer;
mod channels;
mod connection;
mod connection_limits;
mod serve;
mod settings;

pub use authorizer::{Authorizer, Denied, Key, Login, Target};
pub use serve::serve;
pub use settings::{InvalidHostKey, Limits, Settings};
