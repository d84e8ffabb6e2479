//! The endpoints of the tag `storage`; `view` renders a volume for all of them.

pub(crate) mod attach;
pub(crate) mod create;
pub(crate) mod destroy;
pub(crate) mod detach;
pub(crate) mod edit;
pub(crate) mod info;
pub(crate) mod list;
pub(crate) mod quote;
mod view;
