//! Object storage: buckets and objects of organizations, and the S3 protocol in front of them.
//!
//! The store says what exists, and [`files`] keeps the bytes of what is too large for a row. [`Objects`] puts both together
//! and knows nothing of HTTP; [`s3`] is the adapter that speaks the protocol. This crate must not know clusters, requests or
//! drivers. Start reading at [`put`] for how an object comes to be, and at [`s3`] for how a call arrives.

pub mod accounts;
pub mod buckets;
pub mod complete;
pub mod copy;
pub mod delete;
pub mod files;
pub mod find;
pub mod internal;
pub mod list;
pub mod list_versions;
pub mod put;
pub mod s3;
pub mod upkeep;
pub mod uploads;

mod body;
mod error;
mod objects;

pub use body::Reading;
pub use error::{Error, Result};
pub use objects::{Objects, Parts, Settings};
