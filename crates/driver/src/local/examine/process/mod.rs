//! The engine as a process: its capabilities and its limits.

pub(super) mod capabilities;
pub(super) mod examined_process;
pub(super) mod limits;
