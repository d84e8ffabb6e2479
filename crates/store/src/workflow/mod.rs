//! Rows of the durable workflow: requests and their leases, idempotency keys and the event log.
//!
//! Start reading at [`requests`].

pub mod events;
pub mod idempotency;
pub mod requests;
