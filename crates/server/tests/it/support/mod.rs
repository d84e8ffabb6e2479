//! What the tests share: a world with a fake driver behind the router, WebSocket clients, and redaction for snapshots.

pub(crate) mod harness;
pub(crate) mod redact;
pub(crate) mod sockets;
