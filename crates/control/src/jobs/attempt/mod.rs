//! One attempt: a job runs on its nodes, from its start until it has ended on all of them. It does not know which job
//! is admitted next, nor how logs and files are stored.
//!
//! Start reading at `run_attempt`. `node_follower` follows one node, `node_stream` is one stream from it, `verdict`
//! decides what the end on a node means for the job, and `finish` writes the end down. `node_sweep` removes what nodes
//! still hold of jobs that have ended.

pub(crate) mod node_sweep;

pub(super) mod finish;
pub(super) mod guest_calls;
pub(super) mod node_follower;
pub(super) mod run_attempt;
pub(super) mod verdict;

mod job_order;
mod node_followers;
mod node_stream;
