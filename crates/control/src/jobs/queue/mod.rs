//! The rows of jobs: which job is admitted, which task holds its lease, and what happens to the row, the cluster and
//! the stored data after its end. It does not know how a job runs on its nodes.
//!
//! Start reading at [`dispatch`], and at `run_job` for what happens to a leased job.

pub mod dispatch;

pub(crate) mod cluster_destruction;
pub(crate) mod ended_metrics;
pub(crate) mod removal;

pub(super) mod job_note;
pub(super) mod leased_job;
pub(super) mod teardown;

mod run_job;
