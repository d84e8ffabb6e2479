//! Rows of what runs on hosts: clusters, their instances and keys, volumes, and the GPUs of the host.
//!
//! Start reading at [`clusters`]; [`instances`] says how much of the host's capacity they hold.

pub mod attachments;
pub mod cluster_keys;
pub mod clusters;
pub mod gpus;
pub mod host;
pub mod instances;
pub mod storage;
