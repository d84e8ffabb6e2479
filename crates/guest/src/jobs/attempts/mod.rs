//! The attempts of a job: starting one, its state, and following it.
//!
//! Start reading at `run`, which serves an order. `start` writes what must be on disk and starts the supervisor
//! with the script that its shell executes, `attempt` is the state that the guest keeps, and `follow` reports it to the
//! engine.

pub(in crate::jobs) mod attempt;
pub(in crate::jobs) mod follow;
pub(in crate::jobs) mod run;
pub(in crate::jobs) mod start;

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tarn_link::FromJob;

/// Why an attempt could not be started, for the owner of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::jobs) struct Failure {
    pub(in crate::jobs) reason: String,
    /// Whether a retry could succeed.
    pub(in crate::jobs) may_work_later: bool,
}

impl Failure {
    /// Creates a failure that a retry does not fix.
    pub(in crate::jobs) fn permanent(reason: impl Into<String>) -> Failure {
        Failure { reason: reason.into(), may_work_later: false }
    }

    /// Creates a failure that a retry may fix.
    pub(in crate::jobs) fn temporary(reason: impl Into<String>) -> Failure {
        Failure { reason: reason.into(), may_work_later: true }
    }

    /// Creates a failure from an error and what was being done.
    pub(in crate::jobs) fn from_io_error(what: &str, error: &io::Error) -> Failure {
        let short = [Errno::NOSPC, Errno::DQUOT, Errno::NOMEM, Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::IO];
        let is_short = short.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
        Failure { reason: format!("{what}: {error}"), may_work_later: is_short }
    }

    /// Returns the message for followers.
    pub(in crate::jobs) fn to_message(&self) -> FromJob {
        FromJob::NotStarted { reason: self.reason.clone(), may_work_later: self.may_work_later }
    }
}
