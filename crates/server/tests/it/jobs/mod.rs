//! Jobs: their life over HTTP, and the two WebSockets.

pub(crate) mod lifecycle;
mod listen;
mod push;
mod revocation;
