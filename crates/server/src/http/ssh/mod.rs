//! The endpoints of the tag `ssh`.

pub(crate) mod command;
