//! The dispatcher: gives jobs their turn, and lets each that has one be driven by a task of this engine.
//!
//! A driven job is leased, as a request is by the runner. The leases of all are prolonged together; whoever lost one is stopped.
//! Start reading at [`Dispatcher::serve`], and at `drive` for what happens with a job.

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

use super::drive::drive;
use super::hand::{Hand, Shared, Taken};
use super::teardown;
use crate::{Control, Result};

/// Other replicas do not ring our bell, so the database is looked at this often in any case.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// So many jobs are driven here at the same time.
const AT_ONCE: usize = 4_000;

/// Gives jobs their turn and drives them.
pub struct Dispatcher {
    control: Control,
    shared: Arc<Shared>,
}

/// What this engine drives.
#[derive(Default)]
struct Hands {
    tasks: JoinSet<()>,
    held: HashMap<Id, Held>,
}

struct Held {
    job: JobId,
    epoch: i64,
    task: AbortHandle,
}

impl Dispatcher {
    /// A dispatcher that has nothing in hand.
    pub fn new(control: Control) -> Self {
        Dispatcher { control, shared: Arc::default() }
    }

    /// To be called once at the start. `alone` says that no other process works on this database, so that leases of before
    /// belong to the dead and end at once.
    pub async fn recover(&self, alone: bool) -> Result<()> {
        let write = self.control.store().write(move |tx| -> Result<()> {
            if alone {
                jobs::release_all(tx)?;
            }
            Ok(())
        });
        write.await
    }

    /// Works until `stop` is done. Then everything is let go of at once, which harms no job, and `drain` bounds how long giving
    /// the leases back may take.
    pub async fn serve(self, stop: impl Future<Output = ()>, drain: Duration) {
        let mut stop = std::pin::pin!(stop);
        let mut hands = Hands::default();
        let mut renewal = tokio::time::interval(self.control.settings().lease / 3);
        let mut look = tokio::time::interval(LOOK_AGAIN);
        loop {
            let rings = tokio::select! {
                () = &mut stop => break,
                () = self.control.jobs_changed().notified() => true,
                _ = look.tick() => {
                    self.tear_down().await;
                    true
                }
                _ = renewal.tick() => {
                    self.renew(&mut hands).await;
                    false
                }
                Some(done) = hands.tasks.join_next_with_id() => {
                    hands.forget(done);
                    hands.held.len() + 1 == AT_ONCE
                }
            };
            if rings {
                self.control.jobs_left().notify_one();
                self.take_up(&mut hands).await;
            }
        }
        hands.tasks.shutdown().await;
        let held: Vec<(JobId, i64)> = hands.held.into_values().map(|held| (held.job, held.epoch)).collect();
        let given_back = self
            .control
            .store()
            .write(move |tx| held.iter().try_for_each(|(job, epoch)| jobs::release(tx, job, *epoch)));
        if !matches!(tokio::time::timeout(drain, given_back).await, Ok(Ok(()))) {
            tracing::warn!("the leases of jobs could not be given back; they end by themselves");
        }
    }

    /// Destroys clusters that waited for something else than the end of a job.
    async fn tear_down(&self) {
        if let Err(error) = teardown::tick(&self.control).await {
            tracing::warn!(cause = ?error.cause, "clusters could not be destroyed after their jobs: {error}");
        }
    }

    /// Admits every job whose turn it is, and drives what nobody drives.
    async fn take_up(&self, hands: &mut Hands) {
        let free = AT_ONCE.saturating_sub(hands.held.len());
        let taken = match self.take(u32::try_from(free).unwrap_or(u32::MAX)).await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(cause = ?error.cause, "no job could be given its turn: {error}");
                return;
            }
        };
        for taken in taken {
            let (job, epoch) = (taken.leased.job.id.clone(), taken.leased.epoch);
            let task = hands.tasks.spawn(drive(Hand::new(&self.control, &self.shared, taken)));
            hands.held.insert(task.id(), Held { job, epoch, task });
        }
    }

    async fn take(&self, free: u32) -> Result<Vec<Taken>> {
        let is_due = self.control.store().read(jobs::is_any_due).await?;
        if free == 0 || !is_due {
            return Ok(Vec::new());
        }
        let lease = self.control.settings().lease;
        let write = self.control.store().write(move |tx| -> Result<Vec<Taken>> {
            let mut known = HashMap::new();
            for job in jobs::whose_turn_it_is(tx)? {
                let instances = nodes_of(tx, &mut known, &job.cluster)?;
                admit(tx, job, &instances)?;
            }
            let mut taken = Vec::new();
            for leased in jobs::lease_undriven(tx, lease, free)? {
                let nodes = job_nodes::of_job(tx, &leased.job.id)?;
                let instances = nodes_of(tx, &mut known, &leased.job.cluster)?;
                taken.push(Taken { leased, nodes, instances });
            }
            Ok(taken)
        });
        write.await
    }

    /// Prolongs all leases. Who lost his must stop, because somebody else drives the job now. One whose job was ended by force
    /// finds that out by himself.
    async fn renew(&self, hands: &mut Hands) {
        if hands.held.is_empty() {
            return;
        }
        let lease = self.control.settings().lease;
        let held: Vec<(Id, JobId, i64)> =
            hands.held.iter().map(|(id, held)| (*id, held.job.clone(), held.epoch)).collect();
        let write = self.control.store().write(move |tx| {
            let mut lost = Vec::new();
            for (id, job, epoch) in &held {
                match jobs::renew(tx, job, *epoch, lease) {
                    // One that has just ended needs no lease any more, and may finish what it says to the nodes.
                    Err(tarn_store::Error::Conflict) if !jobs::is_lost(tx, job, *epoch)? => {}
                    Err(tarn_store::Error::Conflict) => lost.push(*id),
                    renewed => renewed?,
                }
            }
            Ok::<_, tarn_store::Error>(lost)
        });
        match write.await {
            Ok(lost) => hands.stop(&lost),
            Err(error) => tracing::warn!(%error, "the leases of jobs could not be prolonged"),
        }
    }
}

impl Hands {
    fn forget(&mut self, done: std::result::Result<(Id, ()), JoinError>) {
        match done {
            Ok((id, ())) => drop(self.held.remove(&id)),
            Err(error) => {
                if !error.is_cancelled() {
                    tracing::error!(%error, "a driver panicked; its job is taken up again when its lease ends");
                }
                self.held.remove(&error.id());
            }
        }
    }

    fn stop(&mut self, lost: &[Id]) {
        for held in lost.iter().filter_map(|id| self.held.get(id)) {
            held.task.abort();
        }
    }
}

/// The nodes of a cluster, read once in a transaction.
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

/// Gives a job its turn, on the nodes that it wants.
fn admit(tx: &mut Tx<'_>, job: Job, instances: &[Instance]) -> Result<()> {
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
