//! Jobs: their data, their states and the rules that allow a change. `docs/states/job.md` is rendered from this file by
//! its test.

use serde::{Deserialize, Serialize};

use crate::ids::{ClusterId, InstanceId, JobId};
use crate::job_configs::Config;
use crate::users::Owner;
use crate::{Refused, Time};

/// Commands that run on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    pub owner: Owner,
    pub cluster: ClusterId,
    /// The type of the instances of the cluster.
    pub instance_type: String,
    pub name: String,
    pub config: Config,
    /// Whether the cluster is destroyed after the job.
    pub teardown: Teardown,
    /// The size of the archive of its files: `None` until they are uploaded, and 0 if it has none.
    pub archive_bytes: Option<u64>,
    pub state: State,
    /// When it entered its state.
    pub since: Time,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Why it is attempted again.
    pub note: Option<String>,
    /// How many bytes of its log are stored.
    pub log_bytes: u64,
    pub created: Time,
    /// When it joined the queue of its cluster.
    pub queued: Option<Time>,
    /// When its commands first ran.
    pub started: Option<Time>,
    /// When it ended, with its log and its outputs stored.
    pub ended: Option<Time>,
    /// Counts the changes; a save with an old version lost a race.
    pub version: i64,
}

/// Whether a cluster is destroyed after a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teardown {
    No,
    /// The cluster will be destroyed.
    Wanted,
    /// It was begun, or could not be.
    Over,
}

/// A node that a job runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobNode {
    pub job: JobId,
    /// The node number in the cluster.
    pub node: u32,
    pub instance: InstanceId,
    /// The boot of the instance in which the attempt began; after another boot the attempt is lost.
    pub boot: u32,
    /// How many bytes of the log of the attempt on this node are stored.
    pub log_offset: u64,
    /// Whether the attempt has ended on this node and its whole log is stored.
    pub ended: bool,
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for its files and to be started.
    Draft,
    /// It waits in the queue of its cluster.
    Pending,
    /// It was admitted: its files are sent and its processes are started.
    Starting,
    /// Its commands run.
    Running,
    /// It is being stopped and will have this outcome.
    Stopping(Outcome),
    /// Its processes have ended; its log and its outputs are being stored.
    Collecting(Outcome),
    /// It has ended.
    Ended(Outcome),
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All commands succeeded.
    Completed,
    /// A command failed.
    Error { exit_code: u8, reason: Option<String> },
    /// The engine or the infrastructure failed.
    Failed { reason: String },
    /// A user canceled it.
    Canceled,
}

impl Outcome {
    /// Returns the name that clients see.
    pub fn status(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Error { .. } => "error",
            Outcome::Failed { .. } => "failed",
            Outcome::Canceled => "canceled",
        }
    }

    /// Returns the exit code, if there is one.
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            Outcome::Completed => Some(0),
            Outcome::Error { exit_code, .. } => Some(*exit_code),
            Outcome::Failed { .. } | Outcome::Canceled => None,
        }
    }
}

impl State {
    /// Returns the name that the database stores.
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

    /// Returns the name that clients see. For them a job ends when its log and its outputs are stored.
    pub fn status(&self) -> &'static str {
        match self {
            State::Draft | State::Pending | State::Starting => "pending",
            State::Running => "running",
            State::Stopping(Outcome::Canceled) | State::Collecting(Outcome::Canceled) => "canceling",
            State::Stopping(_) | State::Collecting(_) => "running",
            State::Ended(outcome) => outcome.status(),
        }
    }

    /// Returns the state with this name and outcome.
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

    /// Returns how it ended or will end.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            State::Draft | State::Pending | State::Starting | State::Running => None,
            State::Stopping(outcome) | State::Collecting(outcome) | State::Ended(outcome) => Some(outcome),
        }
    }

    /// Returns whether it counts towards the jobs that run on its cluster.
    pub fn is_placed(&self) -> bool {
        match self {
            State::Starting | State::Running | State::Stopping(_) | State::Collecting(_) => true,
            State::Draft | State::Pending | State::Ended(_) => false,
        }
    }

    /// It joins the queue.
    pub fn queue(self) -> Result<Self, Refused> {
        match self {
            State::Draft => Ok(State::Pending),
            State::Pending | State::Starting | State::Running => self.refuse("queue"),
            State::Stopping(_) | State::Collecting(_) | State::Ended(_) => self.refuse("queue"),
        }
    }

    /// It may start.
    pub fn admit(self) -> Result<Self, Refused> {
        match self {
            State::Pending => Ok(State::Starting),
            State::Draft | State::Starting | State::Running => self.refuse("admit"),
            State::Stopping(_) | State::Collecting(_) | State::Ended(_) => self.refuse("admit"),
        }
    }

    /// Its commands were observed to run.
    pub fn run(self) -> Result<Self, Refused> {
        match self {
            State::Starting => Ok(State::Running),
            State::Draft | State::Pending | State::Running => self.refuse("run"),
            State::Stopping(_) | State::Collecting(_) | State::Ended(_) => self.refuse("run"),
        }
    }

    /// It must end with this outcome. A job without a process ends at once; a job that is already ending keeps its
    /// outcome.
    pub fn stop(self, outcome: Outcome) -> Result<Self, Refused> {
        match self {
            State::Draft | State::Pending => Ok(State::Ended(outcome)),
            State::Starting | State::Running => Ok(State::Stopping(outcome)),
            State::Stopping(_) | State::Collecting(_) => Ok(self),
            State::Ended(_) => self.refuse("stop"),
        }
    }

    /// Its processes have ended and will not run again. A job that was being stopped keeps the outcome of the stop.
    pub fn collect(self, outcome: Outcome) -> Result<Self, Refused> {
        match self {
            State::Pending | State::Starting | State::Running => Ok(State::Collecting(outcome)),
            State::Stopping(intended) => Ok(State::Collecting(intended)),
            State::Draft | State::Collecting(_) | State::Ended(_) => self.refuse("collect"),
        }
    }

    /// Its processes have ended, and it is attempted again.
    pub fn again(self) -> Result<Self, Refused> {
        match self {
            State::Starting | State::Running => Ok(State::Pending),
            State::Draft | State::Pending | State::Stopping(_) => self.refuse("again"),
            State::Collecting(_) | State::Ended(_) => self.refuse("again"),
        }
    }

    /// Its log and its outputs are stored.
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
    /// Returns this job in the state that `transition` leads to. A job that stays in its state keeps the time it
    /// entered it.
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
            State::Pending | State::Running => {}
            State::Draft | State::Starting | State::Stopping(_) | State::Collecting(_) => {}
        }
        Ok(self)
    }

    /// Returns whether it has files that were uploaded.
    pub fn has_files(&self) -> bool {
        self.archive_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// Puts it into the queue of its cluster, if its files are complete.
    pub fn start(self, now: Time) -> Result<Self, Refused> {
        if self.state == State::Draft && self.archive_bytes.is_none() {
            return Err(Refused::JobWithoutFiles { job: self.id.to_string() });
        }
        self.moved(now, State::queue)
    }

    /// Stops it for its owner.
    pub fn cancel(self, now: Time) -> Result<Self, Refused> {
        if let State::Ended(outcome) = &self.state {
            return Err(Refused::JobEnded { job: self.id.to_string(), status: outcome.status() });
        }
        self.stop(now, Outcome::Canceled)
    }

    /// Stops it with this outcome. A job that waits for another attempt has a log and outputs, which are stored first.
    pub fn stop(self, now: Time, outcome: Outcome) -> Result<Self, Refused> {
        match self.state {
            State::Pending if self.attempt > 1 => self.moved(now, |state| state.collect(outcome)),
            State::Draft | State::Pending | State::Starting | State::Running => {
                self.moved(now, |state| state.stop(outcome))
            }
            State::Stopping(_) | State::Collecting(_) | State::Ended(_) => self.moved(now, |state| state.stop(outcome)),
        }
    }

    /// Returns whether another attempt follows one with this outcome.
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
    use crate::rendering::{Transition, render_states};

    #[test]
    fn job_transitions_are_documented() {
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
        render_states("job", &states, State::name, &transitions);
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
    fn job_that_ran_is_collected_before_it_ends() {
        let later = Time::from_micros(5);
        let stopped = |state, attempt| job(state, attempt).stop(later, Outcome::Canceled).unwrap();
        assert_eq!(stopped(State::Pending, 1).state, State::Ended(Outcome::Canceled));
        let again = stopped(State::Pending, 2);
        assert_eq!((again.state, again.since), (State::Collecting(Outcome::Canceled), later));
        let going_on = stopped(State::Collecting(Outcome::Completed), 2);
        assert_eq!((going_on.state, going_on.since), (State::Collecting(Outcome::Completed), Time::ZERO));
    }

    #[test]
    fn job_state_names_parse_back() {
        let outcome = Outcome::Error { exit_code: 3, reason: None };
        for state in [State::Draft, State::Running, State::Stopping(outcome.clone()), State::Ended(outcome)] {
            assert_eq!(State::from_name(state.name(), state.outcome().cloned()), Some(state));
        }
        assert_eq!(State::from_name("ENDED", None), None);
    }
}
