//! Object storage: buckets and objects of organizations, and the S3 protocol in front of them.
//!
//! The store says what exists, and [`files`] keeps the bytes of what is too large for a row. [`Objects`] joins both and
//! knows nothing of HTTP; [`s3`] is the adapter for the protocol. This crate must not know clusters, requests or
//! drivers. Start reading at [`put`] for how an object is stored, and at [`s3`] for how a call arrives.

pub mod accounts;
pub mod bucket_settings;
pub mod buckets;
pub mod files;
pub mod internal;
pub mod keys;
pub mod lifecycle;
pub mod s3;
pub mod upkeep;

mod caller;
mod error;
mod objects;
mod operations;

pub use error::{Error, Result, UnmetCondition};
pub use objects::{Components, Objects, Settings};
pub use operations::body::ObjectReader;
pub use operations::{complete, copy, delete, find, list, list_versions, put, uploads};
