//! The channels of a connection.
//!
//! `sessions` runs programs, `forwards` carries forwarded connections, and `listeners` announces those that arrive at
//! the target. `relay` copies data between a channel and a link stream, and `channel_buffer` slows down a client that
//! sends too fast.

pub(crate) mod channel_buffer;
pub(crate) mod forwards;
pub(crate) mod listeners;
pub(crate) mod relay;
pub(crate) mod sessions;
