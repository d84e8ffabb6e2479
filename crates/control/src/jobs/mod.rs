//! Jobs: commands that run on clusters. What callers do with them is in `operations/jobs`; this is what happens of itself.
//!
//! A job that has its turn is driven by one task of one engine, which holds its lease: it starts the job on its nodes, writes
//! down what it prints, and when nothing of it runs any more makes its files safe and ends it. An engine that comes back, or
//! another replica, goes on where the last one was: the guests keep everything that was not written down.
//!
//! Start reading at [`dispatch`], who gives jobs their turn, and `drive`, which is the life of one of them. `attend` is an
//! attempt of it, `node` and `listen` how one node is followed, `append` how its log is written down, and `collect` and `finish`
//! how it ends. `sweep` and `removal` see that nothing is left of what is over.

#[path = "queue/dispatch.rs"]
pub mod dispatch;
#[path = "files/file_lists.rs"]
pub mod file_lists;
#[path = "logs/reader.rs"]
pub mod logs;
#[path = "files/outputs.rs"]
pub mod outputs;
#[path = "files/signed.rs"]
pub mod signed;
#[path = "files/upload.rs"]
pub mod upload;

#[path = "queue/cluster_destruction.rs"]
pub(crate) mod destroyed;
#[path = "queue/ended_metrics.rs"]
pub(crate) mod ends;
#[path = "logs/live_logs.rs"]
pub(crate) mod live;
#[path = "queue/removal.rs"]
pub(crate) mod removal;
#[path = "files/job_files.rs"]
pub(crate) mod shelf;
#[path = "attempt/node_sweep.rs"]
pub(crate) mod sweep;
#[path = "files/upload_permits.rs"]
pub(crate) mod upload_turns;

#[path = "logs/append.rs"]
mod append;
#[path = "files/archive/mod.rs"]
mod archive;
#[path = "attempt/run_attempt.rs"]
mod attend;
#[path = "files/collect.rs"]
mod collect;
#[path = "logs/compact.rs"]
mod compact;
#[path = "attempt/node_followers.rs"]
mod crew;
#[path = "queue/run_job.rs"]
mod drive;
#[path = "attempt/verdict.rs"]
mod endings;
#[path = "files/fetch_outputs.rs"]
mod fetch;
#[path = "attempt/finish.rs"]
mod finish;
#[path = "logs/log_buffer.rs"]
mod gathered;
#[path = "attempt/guest_calls.rs"]
mod guests;
#[path = "queue/leased_job.rs"]
mod hand;
#[path = "attempt/node_stream.rs"]
mod listen;
#[path = "logs/buffer_memory.rs"]
mod memory;
#[path = "attempt/node_follower.rs"]
mod node;
#[path = "queue/job_note.rs"]
mod notes;
#[path = "attempt/job_order.rs"]
mod orders;
#[path = "backoff.rs"]
mod pauses;
#[path = "files/running_outputs.rs"]
mod present;
#[path = "files/send_files.rs"]
mod send_files;
#[path = "queue/teardown.rs"]
mod teardown;
