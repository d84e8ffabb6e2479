//! The paths of a job. They are built from a validated id only, so no path leads anywhere else.

use std::path::{Path, PathBuf};

use crate::users::Account;

/// The order of an attempt.
pub(super) const ORDER_FILE: &str = "order.json";

/// The output of an attempt.
pub(super) const LOG_FILE: &str = "log";

/// The outcome of an attempt.
pub(super) const OUTCOME_FILE: &str = "outcome.json";

/// The marker that the files of a job have been unpacked.
pub(super) const UNPACKED_MARKER: &str = "unpacked";

/// The directory in the home directory that holds the directories of all jobs.
pub(super) const JOBS_DIRECTORY: &str = "jobs";

/// The directory of the virtual environments. It is separate because a job may have its own `.venv`.
pub(super) const VENVS_DIRECTORY: &str = ".venvs";

/// Files that the user of a job reads.
pub(super) const SCRIPT_FILE: &str = "commands";
pub(super) const HOSTS_FILE: &str = "hosts";

/// The paths of one job.
#[derive(Clone, Debug)]
pub(super) struct JobPaths {
    root: PathBuf,
    job: String,
}

impl JobPaths {
    /// Returns the paths of a job below a root; `None` if the id is not valid.
    pub(super) fn new(root: &Path, job: &str) -> Option<JobPaths> {
        let rest = job.strip_prefix("j-")?;
        let good = rest.len() == 12 && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        good.then(|| JobPaths { root: root.to_owned(), job: job.to_owned() })
    }

    /// Returns the id of the job.
    pub(super) fn job(&self) -> &str {
        &self.job
    }

    /// Returns the guest's directory of all jobs.
    pub(super) fn all_jobs_directory(root: &Path) -> PathBuf {
        root.join("var/lib/tarn/jobs")
    }

    /// Returns the guest's directory of this job.
    pub(super) fn state_directory(&self) -> PathBuf {
        JobPaths::all_jobs_directory(&self.root).join(&self.job)
    }

    /// Returns the guest's directory of an attempt.
    pub(super) fn attempt_directory(&self, attempt: u32) -> PathBuf {
        self.state_directory().join(attempt.to_string())
    }

    /// Returns the directory of all files that users of jobs read.
    pub(super) fn all_user_files_directory(&self) -> PathBuf {
        self.root.join("run/tarn-jobs")
    }

    /// Returns the directory of this job's files that the user reads.
    pub(super) fn user_files_directory(&self) -> PathBuf {
        self.all_user_files_directory().join(&self.job)
    }

    /// Returns the directory in which the commands run.
    pub(super) fn working_directory(&self, account: &Account) -> PathBuf {
        account.home.join(JOBS_DIRECTORY).join(&self.job)
    }

    /// Returns the directory of the virtual environment.
    pub(super) fn venv_directory(&self, account: &Account) -> PathBuf {
        account.home.join(JOBS_DIRECTORY).join(VENVS_DIRECTORY).join(&self.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only valid job ids have paths.
    #[test]
    fn paths_require_a_job_id() {
        let is_accepted = |job| JobPaths::new(Path::new("/"), job).is_some();
        assert!(is_accepted("j-7k2m9q4x0abc"));
        for job in ["", "j-", "j-../../../etc", "j-7k2m9q4x0ab", "j-7k2m9q4x0abcd", "J-7k2m9q4x0abc", "j-7k2m9q4x0aB/"]
        {
            assert!(!is_accepted(job), "{job}");
        }
    }
}
