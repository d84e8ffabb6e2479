//! Users, their keys and preferences, and what administrators do with them.

mod admin;
mod limits;
mod ssh_keys;
mod users;
