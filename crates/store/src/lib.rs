//! The store: the only SQL of Tarn, on SQLite or PostgreSQL with one text.
//!
//! A file per noun holds plain functions over a transaction, [`Tx`]; [`Store`] runs them. The store knows the `model` and
//! nothing of requests' steps, drivers or HTTP. Start reading at [`clusters`] for a noun and at [`db`] for the engines.

pub mod accounts;
pub mod attachments;
pub mod buckets;
pub mod cluster_keys;
pub mod clusters;
pub mod db;
pub mod events;
pub mod examine;
pub mod expiry;
pub mod gpus;
pub mod host;
pub mod idempotency;
pub mod installation;
pub mod instances;
pub mod job_logs;
pub mod job_nodes;
pub mod job_standings;
pub mod jobs;
pub mod ledger;
pub mod limits;
pub mod objects;
pub mod parts;
pub mod requests;
pub mod ssh_keys;
pub mod storage;
#[cfg(feature = "testing")]
pub mod testing;
pub mod uploads;
pub mod users;
pub mod versions;

mod error;
mod listing;
mod store;

pub use error::Error;
pub use listing::{Listing, Whose};
pub use store::{Database, Store, Tx};

/// What store functions return.
pub type Result<T> = std::result::Result<T, Error>;
