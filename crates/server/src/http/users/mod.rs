//! The endpoints of the tag `user` but SSH keys, a file each.

pub(crate) mod edit_preferences;
pub(crate) mod info;
pub(crate) mod me;
pub(crate) mod organization;
pub(crate) mod preferences;
