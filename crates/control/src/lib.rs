//! The control plane without HTTP: operations that callers invoke, durable requests that carry them out, and
//! reconcilers that keep the host and the database in agreement.
//!
//! This crate must not know HTTP, SQL or the host. Start reading at [`operations::clusters`] for what a call does, at
//! [`requests`] for the steps behind it, and at [`runner`] for how the steps are carried out.

pub mod audit;
pub mod bootstrap;
pub mod host_binding;
pub mod jobs;
pub mod operations;
pub mod reconcilers;
pub mod requests;
pub mod restored;
pub mod runner;
#[cfg(feature = "testing")]
pub mod testing;

mod access;
mod calls;
mod control;
mod error;
mod explain;
mod in_memory;
mod secrets;
mod settings;
mod volume_users;

pub use calls::page::{Listing, Page};
pub use calls::{Caller, HeldAccess, Idempotency, page};
pub use control::{Control, Parts, hash_of_key};
pub use error::{Error, Kind, Result};
pub use operations::ssh::SshEndpoint;
pub use secrets::{KeyPair, Secrets};
pub use settings::{AfterReboot, Eligibility, JobSettings, Settings};
