//! The requests about clusters: a file per kind, and what several kinds do with the nodes.
//!
//! Start reading at [`claim`], which brings a cluster up.

pub(super) mod claim;
pub(crate) mod line;
pub(super) mod nodes;
mod pull_image;
pub(super) mod release;
pub(super) mod restart;

pub(crate) use pull_image::NAME as PULL;
