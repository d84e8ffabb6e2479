//! The endpoints for saved SSH keys, which have the tag `user`, a file each.

pub(crate) mod add;
pub(crate) mod list;
pub(crate) mod remove;
