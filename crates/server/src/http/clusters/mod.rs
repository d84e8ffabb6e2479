//! The endpoints of the tag `cluster`; `view` renders a cluster for all of them.

pub(crate) mod change;
pub(crate) mod prices;
pub(crate) mod read;
mod view;
