//! What every call has in common: the caller, the idempotency key, and the pages of lists.
//!
//! Start reading at [`Caller`].

pub mod page;

mod caller;
pub(crate) mod held_access;
pub(crate) mod idempotency;
mod permitted;

pub use caller::{Caller, Idempotency};
pub use held_access::HeldAccess;
