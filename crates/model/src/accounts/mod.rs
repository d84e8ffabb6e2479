//! Users and organizations, and what belongs to them: access, keys, preferences, limits and balance.

pub mod access;
pub mod ledger;
pub mod limits;
pub mod preferences;
pub mod ssh_keys;
pub mod ssh_proofs;
pub mod users;
