//! The files of jobs: the archive that a job starts with, the outputs that it leaves, and the signed URLs by which
//! callers reach both. `job_files` is the only module that knows the keys in object storage.
//!
//! Start reading at [`upload`] for how files arrive, at `collect` for how outputs are saved at the end of a job, and at
//! [`outputs`] for how callers read them.

pub mod file_lists;
pub mod outputs;
pub mod signed;
pub mod upload;

pub(crate) mod job_files;
pub(crate) mod job_space;
pub(crate) mod upload_permits;

pub(super) mod collect;
pub(super) mod send_files;

mod archive;
mod fetch_outputs;
mod running_outputs;
