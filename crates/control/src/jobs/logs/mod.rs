//! What jobs print: stored while they run, and read by callers. A piece of a log is a row or an object; followers of a
//! running job read the end of its log from memory.
//!
//! Start reading at `append` for how a log is stored, and at `reader` for how callers read it.

mod reader;

pub(crate) mod live_logs;
pub(crate) mod recent_blocks;

pub(super) mod append;
pub(super) mod compact;
pub(super) mod log_buffer;

pub use reader::{Followed, Follower, LogPart, MAX_PART, PIECE, follow, read, wait};
