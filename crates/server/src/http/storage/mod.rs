//! The endpoints of the tag `storage`; `view` renders a volume for all of them.

pub(crate) mod attach;
pub(crate) mod change;
pub(crate) mod read;
mod view;
