//! The endpoints for administrators of the engine, a file each. Who is one is decided in `control`.

pub(crate) mod create_key;
pub(crate) mod create_user;
pub(crate) mod disable_user;
pub(crate) mod enable_user;
pub(crate) mod grant;
pub(crate) mod list_events;
pub(crate) mod list_keys;
pub(crate) mod list_users;
pub(crate) mod revoke_key;
