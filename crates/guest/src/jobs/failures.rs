//! Why an attempt could not be started.

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tarn_link::FromJob;

/// A reason, for the owner of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// Whether another try could work.
    pub(super) may_work_later: bool,
}

impl Failure {
    /// A reason that stays.
    pub(super) fn lasting(reason: impl Into<String>) -> Failure {
        Failure { reason: reason.into(), may_work_later: false }
    }

    /// A reason that may pass.
    pub(super) fn passing(reason: impl Into<String>) -> Failure {
        Failure { reason: reason.into(), may_work_later: true }
    }

    /// What was being done when an error came.
    pub(super) fn during(what: &str, error: &io::Error) -> Failure {
        let short = [Errno::NOSPC, Errno::DQUOT, Errno::NOMEM, Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::IO];
        let is_short = short.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
        // Texts of the library around the reason name paths of the guest's own.
        let reason = match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number).to_string(),
            None => error.to_string(),
        };
        Failure { reason: format!("{what}: {reason}"), may_work_later: is_short }
    }

    /// What a follower is told.
    pub(super) fn said(&self) -> FromJob {
        FromJob::NotStarted { reason: self.reason.clone(), may_work_later: self.may_work_later }
    }
}
