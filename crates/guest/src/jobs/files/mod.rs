//! The files of a job, in both directions.
//!
//! `receive` passes the archive of a job to the helper `unpack`, and `outputs` relays what the helper `collect` finds
//! (`patterns` selects the files, `walk` searches them). Both helpers run as the user, so the kernel decides what they
//! may access.

mod collect;
pub(in crate::jobs) mod outputs;
mod patterns;
pub(in crate::jobs) mod receive;
mod unpack;
mod walk;

pub use collect::run_collect_helper;
pub use unpack::run_unpack_helper;
