//! What this process keeps in memory only. None of it is stored: a process that starts observes everything again, and
//! each replica has its own copy.
//!
//! Start reading at [`host_view`], which says what the host has at this moment.

pub(crate) mod access_holds;
pub(crate) mod host_view;
pub(crate) mod key_usage;
pub(crate) mod pushed_access;
pub(crate) mod recent_shows;
pub(crate) mod refused_logins;
pub(crate) mod step_progress;
pub(crate) mod volume_usage;
