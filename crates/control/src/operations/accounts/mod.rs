//! Users, organizations, their keys, balances and limits.
//!
//! Start reading at [`users`] for what callers see of themselves, and at [`admin`] for what administrators of the
//! engine do.

pub mod admin;
pub mod limits;
pub mod users;
