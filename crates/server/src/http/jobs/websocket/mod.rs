//! What the two WebSockets of a job share: `upgrade` turns a call into a socket, `socket` authenticates the client,
//! reads and sends frames and closes, and `permits` bounds how many sockets are open.

mod permits;
pub(super) mod socket;
pub(super) mod upgrade;

pub(crate) use permits::SocketLimits;
