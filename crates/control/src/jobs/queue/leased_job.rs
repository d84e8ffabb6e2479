//! A job in the hands of the task that drives it: what is written down of it, and how more is.
//!
//! Every write names the lease, so that one who lost it writes nothing. What cannot be written now is written later: until then
//! the guests keep it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tarn_model::clusters::Instance;
use tarn_model::ids::InstanceId;
use tarn_model::jobs::{Job, JobNode, State};
use tarn_store::Tx;
use tarn_store::jobs::Leased;

use super::compact::Tail;
use super::live::LiveLog;
use super::memory::Memory;
use super::pauses::Pauses;
use crate::{Control, Error, Kind, Result};

/// What all jobs that are driven here share.
#[derive(Default)]
pub(super) struct Shared {
    /// Memory for output.
    pub(super) memory: Memory,
    /// Nodes on which room is being made.
    pub(super) crowded: Mutex<HashSet<InstanceId>>,
}

/// A job that was leased a moment ago.
pub(super) struct Taken {
    pub(super) leased: Leased,
    pub(super) nodes: Vec<JobNode>,
    pub(super) instances: Arc<Vec<Instance>>,
}

/// One job and everything that its driver needs.
pub(super) struct Hand {
    pub(super) control: Control,
    pub(super) shared: Arc<Shared>,
    /// As it was last read or written.
    pub(super) job: Job,
    /// The number of the lease.
    pub(super) epoch: i64,
    /// Where it runs, and how far its output there is written down.
    pub(super) nodes: Vec<JobNode>,
    /// The nodes of its cluster.
    pub(super) instances: Arc<Vec<Instance>>,
    /// The end of its log.
    pub(super) live: Arc<LiveLog>,
    /// How often this driver itself has touched that.
    touches: u64,
    /// The rows at the end of its log.
    pub(super) tail: Tail,
    /// Whether its commands were seen to run in this attempt.
    pub(super) has_begun: bool,
}

impl Hand {
    /// Takes a job in hand that was leased a moment ago.
    pub(super) fn new(control: &Control, shared: &Arc<Shared>, taken: Taken) -> Self {
        let Taken { leased: Leased { job, epoch }, nodes, instances } = taken;
        Hand {
            control: control.clone(),
            shared: shared.clone(),
            live: control.live_logs().of(&job.id),
            touches: 0,
            tail: Tail::at(job.log_bytes),
            has_begun: job.state == State::Running,
            job,
            epoch,
            nodes,
            instances,
        }
    }

    /// The instance of a node of the job, and its name for people.
    pub(super) fn node(&self, at: usize) -> (&InstanceId, String) {
        let node = &self.nodes[at];
        (&node.instance, format!("{}-{}", self.job.cluster, node.node))
    }

    /// Says to those who listen that something has changed.
    pub(super) fn touch(&mut self) {
        self.touches += 1;
        self.live.touch();
    }

    /// How often others did.
    pub(super) fn touches_of_others(&self) -> u64 {
        self.live.touches().saturating_sub(self.touches)
    }

    /// Carries out a transaction, however often it takes. Only what was lost or refused for good is an error.
    pub(super) async fn write<T: Send + 'static>(
        control: &Control,
        what: &'static str,
        work: impl Fn(&mut Tx<'_>) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        patiently(what, || control.store().write(work.clone())).await
    }
}

/// Does something until it works, or fails for good.
pub(super) async fn patiently<T, F: Future<Output = Result<T>>>(what: &'static str, act: impl Fn() -> F) -> Result<T> {
    let mut pauses = Pauses::default();
    loop {
        match act().await {
            Err(error) if error.kind == Kind::Unavailable => {
                if pauses.is_first() {
                    tracing::warn!(what, cause = ?error.cause, "a job has to wait: {error}");
                }
                pauses.pause().await;
            }
            done => return done,
        }
    }
}

/// Whether the lease is not ours any more.
pub(super) fn is_lost(error: &Error) -> bool {
    error.kind == Kind::Conflict && error.code == Error::CHANGED_MEANWHILE
}
