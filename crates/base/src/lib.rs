//! The few tools that several crates need and that no maintained crate offers in the form we need. A tool is here only
//! if at least two crates use it ([decision 21](../../../docs/decisions/0021-base.md)).
//!
//! Nothing here knows the domain, the database, HTTP or the host. Each module is independent of the others; one that
//! has a dependency is behind a feature of its name.

#[cfg(feature = "archive")]
pub mod archive;
mod backoff;
mod edit;
#[cfg(feature = "fair_share")]
pub mod fair_share;
pub mod files;
#[cfg(feature = "tasks")]
pub mod tasks;
mod text;

pub use backoff::backoff;
pub use edit::Edit;
pub use text::{is_unsafe, plain};
