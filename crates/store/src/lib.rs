//! The store: the only SQL of Tarn, with one text for SQLite and PostgreSQL.
//!
//! Each noun has a file of plain functions over a transaction, [`Tx`]; [`Store`] runs them. The files are grouped in
//! folders, and the crate root exports all of them side by side. The store knows the `model` and nothing of a request's
//! steps, drivers or HTTP. Start reading at [`clusters`] for a noun and at [`db`] for the two databases.

pub mod backup;
pub mod clock;
pub mod db;
pub mod examine;
pub mod expiry;
pub mod installation;
pub mod jobs;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transfer;

mod compute;
mod error;
mod listing;
mod object_storage;
mod organizations;
mod store;
mod workflow;

pub use compute::{attachments, cluster_access, cluster_keys, clusters, gpus, host, instances, storage};
pub use error::Error;
pub use jobs::{logs as job_logs, nodes as job_nodes, status as job_status};
pub use listing::{Listing, OwnerFilter};
pub use object_storage::{
    accounts, bucket_settings, buckets, lifecycle_passes, objects, parts, s3_keys, uploads, versions,
};
pub use organizations::{counts, ledger, limits, ssh_keys, usage, users};
pub use store::{Database, Store, Tx};
pub use workflow::{events, idempotency, line, requests};

/// What store functions return.
pub type Result<T> = std::result::Result<T, Error>;
