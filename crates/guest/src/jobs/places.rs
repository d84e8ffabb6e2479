//! Where the things of a job are. A place is made of a checked id only, so that no path leads anywhere else.

use std::path::{Path, PathBuf};

use crate::accounts::Account;

/// The name of an attempt's order.
pub(super) const ORDER: &str = "order.json";

/// The name of what an attempt wrote.
pub(super) const LOG: &str = "log";

/// The name of how an attempt ended.
pub(super) const OUTCOME: &str = "outcome.json";

/// The name of the mark that the files of a job are in its directory.
pub(super) const UNPACKED: &str = "unpacked";

/// The directory in the home that holds the directories of all jobs.
pub(super) const DIRECTORIES: &str = "jobs";

/// The directory beside them that holds their virtual environments: a job may bring a `.venv` of its own.
pub(super) const VENVS: &str = ".venvs";

/// The files of a job that its user reads.
pub(super) const SCRIPT: &str = "commands";
pub(super) const HOSTS: &str = "hosts";

/// The places of one job.
#[derive(Clone, Debug)]
pub(super) struct Place {
    root: PathBuf,
    job: String,
}

impl Place {
    /// The places of a job below a root; none if that is no id of a job.
    pub(super) fn new(root: &Path, job: &str) -> Option<Place> {
        let rest = job.strip_prefix("j-")?;
        let good = rest.len() == 12 && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        good.then(|| Place { root: root.to_owned(), job: job.to_owned() })
    }

    /// The job.
    pub(super) fn job(&self) -> &str {
        &self.job
    }

    /// The guest's own directory of all jobs.
    pub(super) fn all(root: &Path) -> PathBuf {
        root.join("var/lib/tarn/jobs")
    }

    /// The guest's own directory of this job.
    pub(super) fn state(&self) -> PathBuf {
        Place::all(&self.root).join(&self.job)
    }

    /// The guest's own directory of an attempt.
    pub(super) fn attempt(&self, attempt: u32) -> PathBuf {
        self.state().join(attempt.to_string())
    }

    /// The directory in which files of all jobs lie that their user reads.
    pub(super) fn shown_of_all(&self) -> PathBuf {
        self.root.join("run/tarn-jobs")
    }

    /// What the user reads of this job.
    pub(super) fn shown(&self) -> PathBuf {
        self.shown_of_all().join(&self.job)
    }

    /// The directory in which the commands run.
    pub(super) fn working(&self, account: &Account) -> PathBuf {
        account.home.join(DIRECTORIES).join(&self.job)
    }

    /// The virtual environment.
    pub(super) fn venv(&self, account: &Account) -> PathBuf {
        account.home.join(DIRECTORIES).join(VENVS).join(&self.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_jobs_have_a_place() {
        let place = |job| Place::new(Path::new("/"), job).is_some();
        assert!(place("j-7k2m9q4x0abc"));
        for job in ["", "j-", "j-../../../etc", "j-7k2m9q4x0ab", "j-7k2m9q4x0abcd", "J-7k2m9q4x0abc", "j-7k2m9q4x0aB/"]
        {
            assert!(!place(job), "{job}");
        }
    }
}
