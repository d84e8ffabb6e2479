//! The endpoints of the tag `cluster`; `view` renders a cluster for all of them.

pub(crate) mod create;
pub(crate) mod destroy;
pub(crate) mod edit;
pub(crate) mod info;
pub(crate) mod list;
pub(crate) mod operations;
pub(crate) mod quote;
pub(crate) mod restart;
pub(crate) mod types;
mod view;
