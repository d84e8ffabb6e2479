//! What is said about jobs.
//!
//! A job may be attempted several times; a guest keeps the directory of the job over all attempts, and the output and the
//! end of each attempt until the engine has written them down.

use serde::{Deserialize, Serialize};

/// An attempt of a job, as it should run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOrder {
    /// The job.
    pub job: String,
    /// Which attempt, from 1 on.
    pub attempt: u32,
    /// The commands, which run in order in one shell until one fails.
    pub commands: Vec<String>,
    /// Environment variables: those of the user, and over them those of the engine.
    pub environment: Vec<(String, String)>,
    /// The names of all nodes that take part, in order; they become the lines of the file `TP_HOSTFILE`.
    pub hosts: Vec<String>,
    /// Whether the commands get a fresh virtual environment of Python.
    pub venv: bool,
    /// After how many seconds it is stopped, if ever.
    pub timeout_seconds: Option<u64>,
    /// How long it has to end by itself when its time is over.
    pub grace_seconds: u32,
    /// Whether it has files, which the guest asks for unless it has them already.
    pub has_files: bool,
}

/// Variables may hold secrets, which stay out of logs.
impl std::fmt::Debug for JobOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobOrder").field("job", &self.job).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// What the guest says to who follows a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromJob {
    /// Its commands run. Told once to each follower, before any data.
    Started,
    /// It could not be started, and nothing of this attempt is left. The last message.
    NotStarted {
        /// Why, for its owner.
        reason: String,
        /// Whether another try could work; if not, the owner has to change something.
        may_work_later: bool,
    },
    /// It has ended, and nothing that it started is left; all of its output has been sent before. The guest keeps both until
    /// it hears [`ToJob::Done`].
    Ended(JobEnd),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEnd {
    /// By itself: the exit code of the first command that failed, or 0.
    Exited {
        /// The exit code.
        code: u8,
    },
    /// By a signal that the guest did not send.
    Killed {
        /// Its number.
        signal: u8,
    },
    /// It was stopped because its time was over.
    TimedOut,
    /// It was stopped because that was asked for.
    Stopped,
    /// The node was stopped or restarted while it ran.
    Lost,
}

/// What the engine says while it follows a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToJob {
    /// So many bytes of its output are written down; the guest need not keep them.
    Acknowledged {
        /// Counted from the first byte of the attempt.
        offset: u64,
    },
    /// Its end is written down: the guest forgets the attempt, but keeps the directory of the job. The last message.
    Done,
}

/// A job that a guest knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownJob {
    /// The job.
    pub job: String,
    /// The attempts whose output or end it keeps.
    pub attempts: Vec<u32>,
    /// Whether something of it runs.
    pub running: bool,
}

/// Which files of a job are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputsOrder {
    /// The job.
    pub job: String,
    /// Globs relative to its directory; one that matches a directory stands for everything in it.
    pub patterns: Vec<String>,
    /// Of what matches only these paths; all where there are none.
    pub only: Vec<String>,
    /// Whether their contents are wanted as well.
    pub contents: bool,
}

/// What the guest says about the files of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromOutputs {
    /// A file. Where contents are wanted its data and an end of data follow; it may have changed its size meanwhile.
    File {
        /// Its path relative to the directory of the job: clean, and with slashes.
        path: String,
        /// Its size.
        size: u64,
    },
    /// Something that matches and cannot be given.
    Skipped {
        /// Its path, as far as it can be shown.
        path: String,
        /// Why.
        reason: String,
    },
    /// That was all. The last message.
    End,
}
