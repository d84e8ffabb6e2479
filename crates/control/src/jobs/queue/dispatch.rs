//! The dispatcher admits jobs and runs each admitted job in a task of this engine.
//!
//! The engine leases a job while it runs it, as the runner leases a request. All leases are renewed together, and a
//! task that has lost its lease is aborted. Start reading at [`Dispatcher::serve`], and at `run_job` for what happens
//! to one job.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::clusters::Instance;
use tarn_model::ids::{ClusterId, JobId};
use tarn_model::job_configs::Nodes;
use tarn_model::jobs::{Job, JobNode, State};
use tarn_store::{Tx, instances, job_nodes, jobs};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::leased_job::{DispatcherState, LeasedJob, NewLease};
use super::run_job::run_job;
use super::teardown;
use crate::{Control, Result};

/// Other replicas cannot notify this engine, so it polls the database at this interval.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How many jobs this engine runs at the same time.
const MAX_RUNNING: usize = 4_000;

/// Admits jobs and runs them.
pub struct Dispatcher {
    control: Control,
    shared: Arc<DispatcherState>,
}

/// The jobs that this engine runs.
#[derive(Default)]
struct RunningJobs {
    tasks: JoinSet<()>,
    by_task: HashMap<Id, RunningJob>,
}

struct RunningJob {
    job: JobId,
    epoch: i64,
    task: AbortHandle,
}

impl Dispatcher {
    /// Creates a dispatcher that runs nothing yet.
    pub fn new(control: Control) -> Self {
        Dispatcher { control, shared: Arc::default() }
    }

    /// Must be called once at the start. `alone` means that no other process works on this database: then all leases
    /// belong to processes that have died, and are released.
    pub async fn recover(&self, alone: bool) -> Result<()> {
        let write = self.control.store().write(move |tx| -> Result<()> {
            if alone {
                jobs::release_all(tx)?;
            }
            Ok(())
        });
        write.await
    }

    /// Runs until `stop` completes. Then all tasks are aborted, which harms no job, and the leases are released within
    /// `drain`.
    pub async fn serve(self, stop: impl Future<Output = ()>, drain: Duration) {
        let mut stop = std::pin::pin!(stop);
        let mut running = RunningJobs::default();
        let mut renewal = tokio::time::interval(self.control.settings().lease / 3);
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        loop {
            let should_dispatch = tokio::select! {
                () = &mut stop => break,
                () = self.control.memory.jobs_changed.notified() => true,
                _ = poll.tick() => {
                    self.tear_down_clusters().await;
                    true
                }
                _ = renewal.tick() => {
                    self.renew_leases(&mut running).await;
                    false
                }
                Some(done) = running.tasks.join_next_with_id() => {
                    running.remove_finished(done);
                    running.by_task.len() + 1 == MAX_RUNNING
                }
            };
            if should_dispatch {
                self.control.memory.jobs_left.notify_one();
                self.start_due_jobs(&mut running).await;
            }
        }
        running.tasks.shutdown().await;
        let held: Vec<(JobId, i64)> = running.by_task.into_values().map(|held| (held.job, held.epoch)).collect();
        let released = self
            .control
            .store()
            .write(move |tx| held.iter().try_for_each(|(job, epoch)| jobs::release(tx, job, *epoch)));
        if !matches!(tokio::time::timeout(drain, released).await, Ok(Ok(()))) {
            tracing::warn!("the leases of jobs could not be released; they expire by themselves");
        }
    }

    /// Destroys the clusters whose teardown was delayed by something else than an open job.
    async fn tear_down_clusters(&self) {
        if let Err(error) = teardown::tear_down_idle_clusters(&self.control).await {
            tracing::warn!(cause = ?error.cause, "clusters could not be torn down after their jobs: {error}");
        }
    }

    /// Admits every job that may run, and starts a task for each job without a lease.
    async fn start_due_jobs(&self, running: &mut RunningJobs) {
        let free = MAX_RUNNING.saturating_sub(running.by_task.len());
        let new_leases = match self.admit_and_lease(u32::try_from(free).unwrap_or(u32::MAX)).await {
            Ok(new_leases) => new_leases,
            Err(error) => {
                tracing::warn!(cause = ?error.cause, "no job could be admitted: {error}");
                return;
            }
        };
        for new_lease in new_leases {
            let (job, epoch) = (new_lease.leased.job.id.clone(), new_lease.leased.epoch);
            let task = running.tasks.spawn(run_job(LeasedJob::new(&self.control, &self.shared, new_lease)));
            running.by_task.insert(task.id(), RunningJob { job, epoch, task });
        }
    }

    async fn admit_and_lease(&self, free: u32) -> Result<Vec<NewLease>> {
        let is_due = self.control.store().read(jobs::is_any_due).await?;
        if free == 0 || !is_due {
            return Ok(Vec::new());
        }
        let lease = self.control.settings().lease;
        let write = self.control.store().write(move |tx| -> Result<Vec<NewLease>> {
            let mut known = HashMap::new();
            for job in jobs::admissible(tx)? {
                let instances = nodes_of(tx, &mut known, &job.cluster)?;
                admit_job(tx, job, &instances)?;
            }
            let mut new_leases = Vec::new();
            for leased in jobs::lease_available(tx, lease, free)? {
                let nodes = job_nodes::of_job(tx, &leased.job.id)?;
                let instances = nodes_of(tx, &mut known, &leased.job.cluster)?;
                new_leases.push(NewLease { leased, nodes, instances });
            }
            Ok(new_leases)
        });
        write.await
    }

    /// Renews all leases. A task that has lost its lease is aborted, because another task runs the job now. A task
    /// whose job was ended by force notices that itself.
    async fn renew_leases(&self, running: &mut RunningJobs) {
        if running.by_task.is_empty() {
            return;
        }
        let lease = self.control.settings().lease;
        let held: Vec<(Id, JobId, i64)> =
            running.by_task.iter().map(|(id, running)| (*id, running.job.clone(), running.epoch)).collect();
        let write = self.control.store().write(move |tx| {
            let mut lost = Vec::new();
            for (id, job, epoch) in &held {
                match jobs::renew(tx, job, *epoch, lease) {
                    // A job that has just ended needs no lease, and its task may finish what it sends to the nodes.
                    Err(tarn_store::Error::Conflict) if !jobs::is_lost(tx, job, *epoch)? => {}
                    Err(tarn_store::Error::Conflict) => lost.push(*id),
                    renewed => renewed?,
                }
            }
            Ok::<_, tarn_store::Error>(lost)
        });
        match write.await {
            Ok(lost) => running.abort_lost(&lost),
            Err(error) => tracing::warn!(%error, "the leases of jobs could not be renewed"),
        }
    }
}

impl RunningJobs {
    fn remove_finished(&mut self, done: std::result::Result<(Id, ()), JoinError>) {
        match done {
            Ok((id, ())) => drop(self.by_task.remove(&id)),
            Err(error) => {
                if !error.is_cancelled() {
                    tracing::error!(%error, "the task of a job panicked; the job is resumed when its lease expires");
                }
                self.by_task.remove(&error.id());
            }
        }
    }

    fn abort_lost(&mut self, lost: &[Id]) {
        for running in lost.iter().filter_map(|id| self.by_task.get(id)) {
            running.task.abort();
        }
    }
}

/// Returns the nodes of a cluster, read once per transaction.
fn nodes_of(
    tx: &mut Tx<'_>,
    known: &mut HashMap<ClusterId, Arc<Vec<Instance>>>,
    cluster: &ClusterId,
) -> Result<Arc<Vec<Instance>>> {
    if let Some(nodes) = known.get(cluster) {
        return Ok(nodes.clone());
    }
    let nodes = Arc::new(instances::of_cluster(tx, cluster)?);
    known.insert(cluster.clone(), nodes.clone());
    Ok(nodes)
}

/// Admits a job to the nodes that its configuration asks for.
fn admit_job(tx: &mut Tx<'_>, job: Job, instances: &[Instance]) -> Result<()> {
    let wanted = match job.config.nodes {
        Nodes::First => 1,
        Nodes::All => instances.len(),
    };
    let node = |instance: &Instance| JobNode {
        job: job.id.clone(),
        node: instance.node,
        instance: instance.id.clone(),
        boot: instance.boot,
        log_offset: 0,
        ended: false,
    };
    let nodes: Vec<JobNode> = instances.iter().take(wanted).map(node).collect();
    job_nodes::replace(tx, &job.id, &nodes)?;
    let now = tx.now();
    jobs::save(tx, &job.moved(now, State::admit)?)?;
    Ok(())
}
