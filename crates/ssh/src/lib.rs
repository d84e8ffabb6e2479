//! The SSH front: turns SSH connections into link streams.
//!
//! The gateway of the engine and the guest's own SSH server are both this crate. It asks a [`Authorizer`] who may come in and which
//! [`Target`] he gets, and dials that machine once for every channel. It knows the protocol and its limits, and nothing of
//! users, clusters, processes or files.
//!
//! Start reading at [`serve`]; `visitor` is what a client may ask for on a connection, `sessions` and `forwards` are the two
//! kinds of channels, and `inbox` is how a client that sends faster than the machine reads is held back.

mod authorizer;
mod forwards;
mod gate;
mod inbox;
mod listeners;
mod relay;
mod serve;
mod sessions;
mod settings;
mod visitor;
mod wire;

pub use authorizer::{Authorizer, Denied, Key, Target, Visit};
pub use serve::serve;
pub use settings::{InvalidHostKey, Limits, Settings};
