//! Processes that the guest starts, and how it talks to them.
//!
//! [`Children`] starts and reaps processes, `spawn` makes one run as the user, `Pipe` is a non-blocking descriptor, and
//! `user_sockets` opens Unix sockets with the rights of the user.

mod children;
mod pipe;
pub(crate) mod spawn;
pub mod user_sockets;

pub(crate) use children::ChildExit;
pub use children::Children;
pub(crate) use pipe::Pipe;
