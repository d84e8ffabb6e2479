//! The endpoints about limits of organizations and users, a file each. Who may set them is decided in `control`.

pub(crate) mod clear;
pub(crate) mod edit;
pub(crate) mod info;
pub(crate) mod list;
pub(crate) mod view;
