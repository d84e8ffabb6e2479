//! The endpoints of the tag `requests`, a file each; `view` is how a request looks in all of them.

pub(crate) mod info;
pub(crate) mod list;
pub(crate) mod view;
