//! Clusters and their requests, and the host that they run on.

mod host;
mod lifecycle;
mod requests;
