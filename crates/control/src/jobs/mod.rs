//! Jobs: commands that run on clusters. What callers do with jobs is in `operations::jobs`; this module runs them.
//!
//! One task of one engine runs an admitted job and holds its lease. The task starts the job on its nodes, stores what
//! the job prints, saves its files when no process of it runs any more, and ends it. After a restart, or when another
//! replica takes over, the next task continues from the stored state: the guests keep everything that is not stored
//! yet.
//!
//! Start reading at [`dispatch`], which admits jobs, and at `queue::run_job`, the life of one job. `queue` owns the
//! rows of jobs, `attempt` runs a job on its nodes, [`logs`] stores and serves what it prints, and `files` moves
//! its files.

pub mod logs;

mod attempt;
mod backoff;
pub(crate) mod files;
pub(crate) mod queue;

pub use files::{file_lists, outputs, signed, upload};
pub use queue::dispatch;

pub(crate) use attempt::node_sweep;
