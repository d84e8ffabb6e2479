//! Rows of organizations and their members: users, API keys, SSH keys, counts, limits and the ledger.
//!
//! Start reading at [`users`].

pub mod counts;
pub mod ledger;
pub mod limits;
pub mod ssh_keys;
pub mod usage;
pub mod users;
