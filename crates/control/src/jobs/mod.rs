//! Jobs: commands that run on clusters. What callers do with them is in `operations/jobs`; this is what happens of itself.
//!
//! A job that has its turn is driven by one task of one engine, which holds its lease: it starts the job on its nodes, writes
//! down what it prints, and when nothing of it runs any more makes its files safe and ends it. An engine that comes back, or
//! another replica, goes on where the last one was: the guests keep everything that was not written down.
//!
//! Start reading at [`dispatch`], who gives jobs their turn, and `drive`, which is the life of one of them. `attend` is an
//! attempt of it, `node` and `listen` how one node is followed, `append` how its log is written down, and `collect` and `finish`
//! how it ends. `sweep` and `removal` see that nothing is left of what is over.

pub mod dispatch;
pub mod file_lists;
pub mod logs;
pub mod outputs;
pub mod signed;
pub mod upload;

pub(crate) mod destroyed;
pub(crate) mod ends;
pub(crate) mod live;
pub(crate) mod removal;
pub(crate) mod shelf;
pub(crate) mod sweep;
pub(crate) mod upload_turns;

mod append;
mod archive;
mod attend;
mod collect;
mod compact;
mod crew;
mod drive;
mod endings;
mod fetch;
mod finish;
mod gathered;
mod guests;
mod hand;
mod listen;
mod memory;
mod node;
mod notes;
mod orders;
mod pauses;
mod present;
mod send_files;
mod teardown;
