//! Jobs: what they are and what the rules allow with them.

use serde::{Deserialize, Serialize};

use crate::ids::{ClusterId, InstanceId, JobId};
use crate::job_configs::Config;
use crate::users::Owner;
use crate::{Refused, Time};

/// Commands that run on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Whose it is.
    pub owner: Owner,
    /// Where it runs.
    pub cluster: ClusterId,
    /// The name of the type of the instances there.
    pub instance_type: String,
    /// What people call it.
    pub name: String,
    /// What it does.
    pub config: Config,
    /// Whether the cluster is to be destroyed after it.
    pub teardown: Teardown,
    /// Whether its files are there: the size of their archive. `None` while they have not come, and 0 if it has none.
    pub archive_bytes: Option<u64>,
    /// Where it is in its life.
    pub state: State,
    /// Since when it is there.
    pub since: Time,
    /// Which attempt this is, from 1 on.
    pub attempt: u32,
    /// Why it is attempted again, if it is.
    pub note: Option<String>,
    /// How many bytes of its output are written down.
    pub log_bytes: u64,
    /// When it was made.
    pub created: Time,
    /// When it joined the line of its cluster.
    pub queued: Option<Time>,
    /// When its commands began to run for the first time.
    pub started: Option<Time>,
    /// When it ended, with its output and its files safe.
    pub ended: Option<Time>,
    /// Counts the changes; a save with an old one is a lost race.
    pub version: i64,
}

/// Whether a cluster is destroyed after a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teardown {
    /// It stays.
    No,
    /// It will be.
    Wanted,
    /// That was begun, or could not be.
    Over,
}

/// A node that a job runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobNode {
    /// The job.
    pub job: JobId,
    /// The number of the node in its cluster.
    pub node: u32,
    /// The instance.
    pub instance: InstanceId,
    /// The start of the instance in which the attempt began; after another start the attempt is lost.
    pub boot: u32,
    /// How many bytes of what the attempt wrote there are written down.
    pub log_offset: u64,
    /// Whether the attempt has ended there, and that is written down.
    pub ended: bool,
}

/// Where a job is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for its files and for its start.
    Draft,
    /// It waits for its turn on the cluster.
    Pending,
    /// It is its turn: files are sent and processes are started.
    Starting,
    /// Its commands run.
    Running,
    /// It is being stopped, and will have had this outcome.
    Stopping(Outcome),
    /// Nothing of it runs any more; its output and its files are being made safe.
    Collecting(Outcome),
    /// It is over.
    Ended(Outcome),
}

/// How a job came to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All commands succeeded.
    Completed,
    /// A command failed.
    Error {
        /// Its exit code.
        exit_code: u8,
        /// In words, if there is more to say.
        reason: Option<String>,
    },
    /// Something of ours failed.
    Failed {
        /// What.
        reason: String,
    },
    /// Somebody did not want it any more.
    Canceled,
}

impl Outcome {
    /// The name that clients see.
    pub fn status(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Error { .. } => "error",
            Outcome::Failed { .. } => "failed",
            Outcome::Canceled => "canceled",
        }
    }

    /// The exit code, where there is one.
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            Outcome::Completed => Some(0),
            Outcome::Error { exit_code, .. } => Some(*exit_code),
            Outcome::Failed { .. } | Outcome::Canceled => None,
        }
    }
}

impl State {
    /// The name in the database.
    pub fn name(&self) -> &'static str {
        match self {
            State::Draft => "DRAFT",
            State::Pending => "PENDING",
            State::Starting => "STARTING",
            State::Running => "RUNNING",
            State::Stopping(_) => "STOPPING",
            State::Collecting(_) => "COLLECTING",
            State::Ended(_) => "ENDED",
        }
    }

    /// The name that clients see. Only what is safe has ended for them.
    pub fn status(&self) -> &'static str {
        match self {
            State::Draft | State::Pending | State::Starting => "pending",
            State::Running => "running",
            State::Stopping(Outcome::Canceled) | State::Collecting(Outcome::Canceled) => "canceling",
            State::Stopping(_) | State::Collecting(_) => "running",
            State::Ended(outcome) => outcome.status(),
        }
    }

    /// The state of this name with this outcome.
    pub fn from_name(name: &str, outcome: Option<Outcome>) -> Option<Self> {
        match (name, outcome) {
            ("DRAFT", None) => Some(State::Draft),
            ("PENDING", None) => Some(State::Pending),
            ("STARTING", None) => Some(State::Starting),
            ("RUNNING", None) => Some(State::Running),
            ("STOPPING", Some(outcome)) => Some(State::Stopping(outcome)),
            ("COLLECTING", Some(outcome)) => Some(State::Collecting(outcome)),
            ("ENDED", Some(outcome)) => Some(State::Ended(outcome)),
            _ => None,
        }
    }

    /// How it ended or is going to.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            State::Draft | State::Pending | State::Starting | State::Running => None,
            State::Stopping(outcome) | State::Collecting(outcome) | State::Ended(outcome) => Some(outcome),
        }
    }

    /// Whether it takes a place on its cluster.
    pub fn is_placed(&self) -> bool {
        match self {
            State::Starting | State::Running | State::Stopping(_) | State::Collecting(_) => true,
            State::Draft | State::Pending | State::Ended(_) => false,
        }
    }

    /// It joins the line.
    pub fn queue(self) -> Result<Self, Refused> {
        match self {
            State::Draft => Ok(State::Pending),
            State::Pending | State::Starting | State::Running => self.refuse("queue"),
            State::Stopping(_) | State::Collecting(_) | State::Ended(_) => self.refuse("queue"),
        }
    }

    /// It is its turn.
    pub fn admit(self) -> Result<Self, Refused> {
        match self {
            State::Pending => Ok(State::Starting),
            State::Draft | State::Starting | State::Running => self.refuse("admit"),
            State::Stopping(_) | State::Collecting(_) | State::Ended(_) => self.refuse("admit"),
        }
    }

    /// Its commands were seen to run.
    pub fn run(self) -> Result<Self, Refused> {
        match self {
            State::Starting => Ok(State::Running),
            State::Draft | State::Pending | State::Running => self.refuse("run"),
            State::Stopping(_) | State::Collecting(_) | State::Ended(_) => self.refuse("run"),
        }
    }

    /// Somebody wants it to end with this outcome. What has no process yet ends at once; what is ending anyway goes on.
    pub fn stop(self, outcome: Outcome) -> Result<Self, Refused> {
        match self {
            State::Draft | State::Pending => Ok(State::Ended(outcome)),
            State::Starting | State::Running => Ok(State::Stopping(outcome)),
            State::Stopping(_) | State::Collecting(_) => Ok(self),
            State::Ended(_) => self.refuse("stop"),
        }
    }

    /// Nothing of it runs any more, or will run again. One that was being stopped ends as that was meant.
    pub fn collect(self, outcome: Outcome) -> Result<Self, Refused> {
        match self {
            State::Pending | State::Starting | State::Running => Ok(State::Collecting(outcome)),
            State::Stopping(meant) => Ok(State::Collecting(meant)),
            State::Draft | State::Collecting(_) | State::Ended(_) => self.refuse("collect"),
        }
    }

    /// Nothing of it runs any more, and it is tried once more.
    pub fn again(self) -> Result<Self, Refused> {
        match self {
            State::Starting | State::Running => Ok(State::Pending),
            State::Draft | State::Pending | State::Stopping(_) => self.refuse("again"),
            State::Collecting(_) | State::Ended(_) => self.refuse("again"),
        }
    }

    /// Its output and its files are safe.
    pub fn end(self) -> Result<Self, Refused> {
        match self {
            State::Collecting(outcome) => Ok(State::Ended(outcome)),
            State::Draft | State::Pending | State::Starting | State::Running => self.refuse("end"),
            State::Stopping(_) | State::Ended(_) => self.refuse("end"),
        }
    }

    fn refuse(&self, transition: &'static str) -> Result<Self, Refused> {
        Err(Refused::Transition { from: self.name(), transition })
    }
}

impl Job {
    /// This job in the state that `transition` leads to. One that stays where it is has been there for as long as before.
    pub fn moved(
        mut self,
        now: Time,
        transition: impl FnOnce(State) -> Result<State, Refused>,
    ) -> Result<Self, Refused> {
        let before = self.state.clone();
        self.state = transition(self.state)?;
        if self.state == before {
            return Ok(self);
        }
        self.since = now;
        match &self.state {
            State::Pending if self.queued.is_none() => self.queued = Some(now),
            State::Running if self.started.is_none() => self.started = Some(now),
            State::Ended(_) => self.ended = Some(now),
            _ => {}
        }
        Ok(self)
    }

    /// Whether it has files, which have come.
    pub fn has_files(&self) -> bool {
        self.archive_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// Puts it into the line of its cluster, if all that it needs is there.
    pub fn start(self, now: Time) -> Result<Self, Refused> {
        if self.state == State::Draft && self.archive_bytes.is_none() {
            return Err(Refused::JobWithoutFiles { job: self.id.to_string() });
        }
        self.moved(now, State::queue)
    }

    /// Stops it because its owner wants that.
    pub fn cancel(self, now: Time) -> Result<Self, Refused> {
        if let State::Ended(outcome) = &self.state {
            return Err(Refused::JobEnded { job: self.id.to_string(), status: outcome.status() });
        }
        self.stop(now, Outcome::Canceled)
    }

    /// Stops it with this outcome. One that has run before and waits to run again has left something that is made safe first.
    pub fn stop(self, now: Time, outcome: Outcome) -> Result<Self, Refused> {
        match self.state {
            State::Pending if self.attempt > 1 => self.moved(now, |state| state.collect(outcome)),
            _ => self.moved(now, |state| state.stop(outcome)),
        }
    }

    /// Whether an attempt that ended like this is followed by another one.
    pub fn is_retried_after(&self, outcome: &Outcome) -> bool {
        let retries = &self.config.retries;
        let counts = match outcome {
            Outcome::Failed { .. } => true,
            Outcome::Error { exit_code, .. } => retries.exit_codes.contains(exit_code),
            Outcome::Completed | Outcome::Canceled => false,
        };
        counts && self.attempt <= retries.count && matches!(self.state, State::Starting | State::Running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendering::{Transition, render};

    #[test]
    fn the_table_of_transitions_is_documented() {
        let states = [
            State::Draft,
            State::Pending,
            State::Starting,
            State::Running,
            State::Stopping(Outcome::Canceled),
            State::Collecting(Outcome::Completed),
            State::Ended(Outcome::Completed),
        ];
        let transitions: [Transition<State>; 7] = [
            ("queue", State::queue),
            ("admit", State::admit),
            ("run", State::run),
            ("stop", |state| state.stop(Outcome::Canceled)),
            ("collect", |state| state.collect(Outcome::Completed)),
            ("again", State::again),
            ("end", State::end),
        ];
        render("job", &states, State::name, &transitions);
    }

    fn job(state: State, attempt: u32) -> Job {
        Job {
            id: "j-000000000000".parse().unwrap(),
            owner: Owner { user: "u-000000000001".parse().unwrap(), org: None },
            cluster: "c-000000000001".parse().unwrap(),
            instance_type: "1xCPU".into(),
            name: "heron".into(),
            config: Config::default(),
            teardown: Teardown::No,
            archive_bytes: None,
            state,
            since: Time::ZERO,
            attempt,
            note: None,
            log_bytes: 0,
            created: Time::ZERO,
            queued: None,
            started: None,
            ended: None,
            version: 0,
        }
    }

    #[test]
    fn what_has_run_is_made_safe_before_it_ends() {
        let later = Time::from_micros(5);
        let stopped = |state, attempt| job(state, attempt).stop(later, Outcome::Canceled).unwrap();
        assert_eq!(stopped(State::Pending, 1).state, State::Ended(Outcome::Canceled));
        let again = stopped(State::Pending, 2);
        assert_eq!((again.state, again.since), (State::Collecting(Outcome::Canceled), later));
        let going_on = stopped(State::Collecting(Outcome::Completed), 2);
        assert_eq!((going_on.state, going_on.since), (State::Collecting(Outcome::Completed), Time::ZERO));
    }

    #[test]
    fn names_come_back() {
        let outcome = Outcome::Error { exit_code: 3, reason: None };
        for state in [State::Draft, State::Running, State::Stopping(outcome.clone()), State::Ended(outcome)] {
            assert_eq!(State::from_name(state.name(), state.outcome().cloned()), Some(state));
        }
        assert_eq!(State::from_name("ENDED", None), None);
    }
}
