//! The messages about jobs.
//!
//! A job may have several attempts. The guest keeps the directory of the job across all attempts, and the output and
//! outcome of each attempt until the engine has stored them.

use serde::{Deserialize, Serialize};

/// The order to run one attempt of a job.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOrder {
    /// The job.
    pub job: String,
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
    /// The commands, which run in order in one shell until one fails.
    pub commands: Vec<String>,
    /// Environment variables: those of the user first, then those of the engine, which take precedence.
    pub environment: Vec<(String, String)>,
    /// The names of all nodes of the job, in order; they become the lines of the file `TP_HOSTFILE`.
    pub hosts: Vec<String>,
    /// Whether the commands run in a fresh Python virtual environment.
    pub venv: bool,
    /// The timeout, if there is one.
    pub timeout_seconds: Option<u64>,
    /// How long the attempt may take to end after its timeout, before it is killed.
    pub grace_seconds: u32,
    /// Whether the job has files; the guest asks for them unless it has them already.
    pub has_files: bool,
}

/// Keeps the environment variables, which may hold secrets, out of logs.
impl std::fmt::Debug for JobOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobOrder").field("job", &self.job).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// What the guest sends to a follower of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromJob {
    /// The commands are running. Sent once to each follower, before any data.
    Started,
    /// The attempt could not be started, and nothing of it is left. The last message.
    NotStarted {
        /// The reason, for the owner of the job.
        reason: String,
        /// Whether a retry could succeed; if not, the owner has to change something.
        may_work_later: bool,
    },
    /// The attempt and everything it started have ended, and all of its output has been sent. The guest keeps both
    /// until it receives [`ToJob::Done`].
    Ended(JobEnd),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEnd {
    /// The commands exited: the code of the first command that failed, or 0.
    Exited {
        /// The exit code.
        code: u8,
    },
    /// A signal that the guest did not send ended it.
    Killed { signal: u8 },
    /// The guest stopped it after its timeout.
    TimedOut,
    /// The guest stopped it on request.
    Stopped,
    /// The node was stopped or restarted while it ran.
    Lost,
}

/// What the engine sends while it follows a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToJob {
    /// The engine has stored this many bytes of the output; the guest may drop them.
    Acknowledged {
        /// Counted from the first byte of the attempt.
        offset: u64,
    },
    /// The engine has stored the outcome: the guest forgets the attempt, but keeps the directory of the job. The last
    /// message.
    Done,
}

/// A job that a guest knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownJob {
    /// The job.
    pub job: String,
    /// The attempts whose output or outcome the guest keeps.
    pub attempts: Vec<u32>,
    /// Whether an attempt is running.
    pub running: bool,
}

/// The request for files of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputsOrder {
    /// The job.
    pub job: String,
    /// Globs relative to the directory of the job; a glob that matches a directory selects everything in it.
    pub patterns: Vec<String>,
    /// If not empty, only these paths among the matches.
    pub only: Vec<String>,
    /// Whether the contents are wanted as well.
    pub contents: bool,
}

/// What the guest sends about the files of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromOutputs {
    /// A file. If contents are wanted, its data and an end of data follow; its size may have changed meanwhile.
    File {
        /// The path relative to the directory of the job: normalized, with slashes.
        path: String,
        size: u64,
    },
    /// A match that cannot be sent.
    Skipped {
        /// The path; bytes that are not UTF-8 are replaced.
        path: String,
        reason: String,
    },
    /// The last message.
    End,
}
