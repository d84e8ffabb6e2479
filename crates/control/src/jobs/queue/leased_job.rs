//! A leased job: its rows as the task that runs it knows them, and how that task writes.
//!
//! Every write names the lease, so a task that has lost it writes nothing. What cannot be stored now is stored later;
//! until then the guests keep it.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_base::fair_share::FairShare;
use tarn_model::clusters::Instance;
use tarn_model::ids::{InstanceId, JobId};
use tarn_model::jobs::{Job, JobNode, State};
use tarn_store::Tx;
use tarn_store::jobs::Leased;

use crate::jobs::backoff::Backoff;
use crate::jobs::logs::compact::RowTail;
use crate::jobs::logs::live_logs::LiveLog;
use crate::{Control, Error, Kind, Result};

/// How much memory output that is not stored yet may use, of all jobs together and of one job: a job that floods delays
/// no other.
const MAX_BUFFERED_BYTES: usize = 256 << 20;
const MAX_BUFFERED_JOB_BYTES: usize = 16 << 20;

/// What all running jobs of this engine share.
pub(in crate::jobs) struct DispatcherState {
    /// A permit is a byte of output that is not stored yet.
    pub(in crate::jobs) memory: FairShare<JobId>,
    /// The nodes on which a task is making room for another job.
    pub(in crate::jobs) nodes_making_room: Mutex<HashSet<InstanceId>>,
}

impl Default for DispatcherState {
    fn default() -> Self {
        let memory = FairShare::new(MAX_BUFFERED_BYTES, MAX_BUFFERED_JOB_BYTES);
        DispatcherState { memory, nodes_making_room: Mutex::default() }
    }
}

/// The rows of a job that was just leased.
pub(super) struct NewLease {
    pub(super) leased: Leased,
    pub(super) nodes: Vec<JobNode>,
    pub(super) instances: Arc<Vec<Instance>>,
}

/// A job and everything that the task running it needs.
pub(in crate::jobs) struct LeasedJob {
    pub(in crate::jobs) control: Control,
    pub(in crate::jobs) shared: Arc<DispatcherState>,
    /// The row as it was last read or written.
    pub(in crate::jobs) job: Job,
    pub(in crate::jobs) epoch: i64,
    /// The nodes that the job runs on, and how much of their output is stored.
    pub(in crate::jobs) nodes: Vec<JobNode>,
    /// All nodes of its cluster.
    pub(in crate::jobs) instances: Arc<Vec<Instance>>,
    pub(in crate::jobs) live: Arc<LiveLog>,
    /// How many of the state changes in `live` this task made itself.
    own_changes: u64,
    /// The rows at the end of its log.
    pub(in crate::jobs) tail: RowTail,
    /// Whether its commands were observed to run in this attempt.
    pub(in crate::jobs) has_begun: bool,
}

impl LeasedJob {
    /// Creates it from the rows of a new lease.
    pub(super) fn new(control: &Control, shared: &Arc<DispatcherState>, new_lease: NewLease) -> Self {
        let NewLease { leased: Leased { job, epoch }, nodes, instances } = new_lease;
        LeasedJob {
            control: control.clone(),
            shared: shared.clone(),
            live: control.memory.live_logs.open_log(&job.id),
            own_changes: 0,
            tail: RowTail::starting_at(job.log_bytes),
            has_begun: job.state == State::Running,
            job,
            epoch,
            nodes,
            instances,
        }
    }

    /// Returns the instance of a node of the job, and the node's name for messages.
    pub(in crate::jobs) fn instance_and_name(&self, at: usize) -> (&InstanceId, String) {
        let node = &self.nodes[at];
        (&node.instance, format!("{}-{}", self.job.cluster, node.node))
    }

    /// Notifies the followers of the job of a state change that this task made.
    pub(in crate::jobs) fn notify_own_change(&mut self) {
        self.own_changes += 1;
        self.live.notify_state_change();
    }

    /// Returns how many state changes other tasks have made.
    pub(in crate::jobs) fn changes_by_others(&self) -> u64 {
        self.live.state_changes().saturating_sub(self.own_changes)
    }
}

/// Runs a transaction, and repeats it while the database is unavailable. A lost lease or a refusal is an error.
pub(in crate::jobs) async fn retry_write<T: Send + 'static>(
    control: &Control,
    what: &'static str,
    work: impl Fn(&mut Tx<'_>) -> Result<T> + Clone + Send + 'static,
) -> Result<T> {
    retry_while_unavailable(what, || control.store().write(work.clone())).await
}

/// Repeats an operation with a backoff while it fails as unavailable.
pub(in crate::jobs) async fn retry_while_unavailable<T, F: Future<Output = Result<T>>>(
    what: &'static str,
    act: impl Fn() -> F,
) -> Result<T> {
    let mut backoff = Backoff::default();
    loop {
        match act().await {
            Err(error) if error.kind == Kind::Unavailable => {
                if backoff.is_first() {
                    tracing::warn!(what, cause = ?error.cause, "a job waits and retries: {error}");
                }
                backoff.sleep().await;
            }
            done => return done,
        }
    }
}

/// Returns whether an error means that the lease is lost.
pub(super) fn is_lease_lost(error: &Error) -> bool {
    error.kind == Kind::Conflict && error.code == Error::CHANGED_MEANWHILE
}
