//! Rows of the durable workflow: requests and their leases, the capacity queue, idempotency keys and the event log.
//!
//! Start reading at [`requests`].

pub mod events;
pub mod idempotency;
pub mod line;
pub mod requests;
