//! Compares the instances with the database: marks dead instances, and removes instances that belong to no cluster.
//! Before that, the driver restores the isolation between instances.
//!
//! An instance whose row says RUNNING and that is not running is dead, and is marked immediately. Instances that ended
//! with the host are restarted (`reboots`). An instance without a row is removed after it was seen for the whole grace
//! period. A volume that is missing or damaged is marked as failed until it is observed to be intact. A volume without
//! a row is only reported: data is never removed on a guess.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_driver::End;
use tarn_model::Time;
use tarn_model::events::{Cause, ClusterEvent, Event, InstanceEvent, VolumeEvent};
use tarn_model::ids::{ClusterId, InstanceId, VolumeId};
use tarn_model::lifecycle::State;
use tarn_store::{Tx, clusters, events, instances, requests};

use super::{reboots, volumes};
use crate::audit::{Difference, differences_of_existing};
use crate::{Control, Error, Kind, Result, Settings};

/// How many clusters are read at a time.
const CLUSTERS_AT_ONCE: u32 = 100;

/// Completes when a cluster has been restarted, so that the next one may be admitted.
pub async fn changed(control: &Control) {
    control.memory.restarted.notified().await;
}

/// Compares everything once.
pub async fn tick(control: &Control) -> Result<Duration> {
    // Isolation comes first. A failure to restore it must not hide a dead instance.
    let isolated = control.driver().restore_isolation().await.map_err(Error::internal);
    compare_with_host(control).await?;
    isolated?;
    Ok(control.settings().instances_every)
}

/// Compares the host with the database, and repairs.
pub(super) async fn compare_with_host(control: &Control) -> Result<()> {
    let observed = match control.driver().observe().await {
        Ok(observed) => observed,
        Err(error) => {
            observe_one_by_one(control).await?;
            return Err(Error::internal(error));
        }
    };
    control.memory.volume_usage.record_all_volumes(&observed);
    let (mut suspects, mut orphans, mut unknown) = (BTreeMap::<ClusterId, Vec<InstanceId>>::new(), vec![], vec![]);
    let mut doubtful = Vec::new();
    for difference in differences_of_existing(control.store(), &observed).await? {
        match difference {
            Difference::Instance(claimed, seen) => {
                let instance = claimed.instance;
                if instance.state == State::Running && !seen.is_some_and(|seen| seen.running) {
                    suspects.entry(instance.cluster).or_default().push(instance.id);
                }
            }
            Difference::UnknownInstance(id) => orphans.push(id),
            Difference::UnknownVolume(id) => unknown.push(id),
            Difference::Volume(volume, _) => doubtful.push(volume),
        }
    }
    // Volumes first: a cluster with a failed volume is not restarted.
    for volume in &doubtful {
        volumes::recheck_volume(control, volume).await?;
    }
    for (cluster, nodes) in &suspects {
        mark_dead(control, cluster, nodes).await?;
    }
    reboots::admit_waiting_restarts(control).await?;
    let now = control.clock().now();
    for id in control.memory.unknown_resources.overdue_orphans(&orphans, now, control.settings().orphan_grace) {
        remove_orphan(control, &id).await?;
    }
    for id in control.memory.unknown_resources.unreported_volumes(&unknown) {
        tracing::warn!(volume = %id, "a volume without a row exists; it is left alone, because it may hold data");
        record_engine_event(control, Event::Volume(id, VolumeEvent::Unknown {})).await?;
    }
    Ok(())
}

/// Observes the nodes that should run one by one, because not everything can be observed at once. A missing disk of
/// volumes must not hide a dead node, and a node that cannot be observed must not hide one of another cluster.
async fn observe_one_by_one(control: &Control) -> Result<()> {
    let mut after = None;
    loop {
        let page = control.store().read(|tx| running_nodes(tx, after.as_ref())).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (cluster, nodes) in &page {
            if let Err(error) = mark_dead(control, cluster, nodes).await {
                tracing::debug!(%cluster, cause = ?error.cause, "its nodes could not be observed: {error}");
            }
        }
    }
}

/// Returns a page of the clusters that hold capacity, with those of their nodes that should run. A cluster that a
/// request is changing has none.
fn running_nodes(tx: &mut Tx<'_>, after: Option<&ClusterId>) -> Result<Vec<(ClusterId, Vec<InstanceId>)>> {
    let found = clusters::holding(tx, after, CLUSTERS_AT_ONCE)?;
    let mut nodes = instances::of_clusters(tx, &found)?;
    let mut running = Vec::with_capacity(found.len());
    for cluster in found {
        let is_busy = requests::is_cluster_busy(tx, &cluster.id)?;
        let nodes = nodes.remove(&cluster.id).unwrap_or_default().into_iter();
        let nodes = nodes.filter(|node| !is_busy && node.state == State::Running).map(|node| node.id).collect();
        running.push((cluster.id, nodes));
    }
    Ok(running)
}

/// Observes instances again that seem dead, and marks the dead ones. If the cluster changed in between, nothing is
/// done: a request may just have started the nodes.
async fn mark_dead(control: &Control, cluster: &ClusterId, suspects: &[InstanceId]) -> Result<()> {
    let before = control.store().read(|tx| clusters::get(tx, cluster)).await.map_err(Error::from)?;
    let Some(version) = before.map(|cluster| cluster.version) else { return Ok(()) };
    let mut dead = HashMap::new();
    for id in suspects {
        match control.driver().observe_instance(id).await.map_err(Error::internal)? {
            Some(seen) if seen.running => {}
            seen => drop(dead.insert(id.clone(), seen.and_then(|seen| seen.end).unwrap_or(End::Lost))),
        }
    }
    if dead.is_empty() {
        return Ok(());
    }
    let (cluster, settings) = (cluster.clone(), control.settings().clone());
    match control.store().write(move |tx| commit_deaths(tx, &cluster, version, &dead, &settings)).await {
        Err(error) if error.kind == Kind::Conflict => Ok(()),
        done => done,
    }
}

fn commit_deaths(
    tx: &mut Tx<'_>,
    id: &ClusterId,
    version: i64,
    dead: &HashMap<InstanceId, End>,
    settings: &Settings,
) -> Result<()> {
    let cluster = clusters::get(tx, id)?.filter(|cluster| cluster.version == version);
    let (Some(cluster), true) = (cluster, requests::open_of_cluster(tx, id)?.is_empty()) else { return Ok(()) };
    let (now, owner) = (tx.now(), cluster.owner.clone());
    let mut nodes = instances::of_cluster(tx, id)?;
    let by_host_reboot = dead.values().all(|end| *end == End::MachineRebooted);
    if by_host_reboot && reboots::bring_cluster_back(tx, &cluster, &nodes, settings)? {
        return Ok(());
    }
    for node in &mut nodes {
        let Some(end) = dead.get(&node.id).filter(|_| node.state == State::Running) else { continue };
        *node = node.clone().died(*end)?;
        instances::save(tx, node)?;
        let died = InstanceEvent::Died { cause: Cause(*end), cluster: id.clone(), name: node.name() };
        tx.record(owner.scope(), Event::Instance(node.id.clone(), died))?;
        metrics::counter!("tarn_instances_died_total", "cause" => end.name()).increment(1);
    }
    let cluster = cluster.lost_nodes(&nodes, now)?;
    clusters::save(tx, &cluster)?;
    let failed = ClusterEvent::Failed { reason: cluster.state.reason().map(str::to_owned) };
    Ok(tx.record(owner.scope(), Event::Cluster(cluster.id, failed))?)
}

async fn remove_orphan(control: &Control, id: &InstanceId) -> Result<()> {
    match control.driver().remove_instance(id).await {
        Ok(()) => {
            tracing::warn!(instance = %id, "an instance without a row was removed");
            record_engine_event(control, Event::Instance(id.clone(), InstanceEvent::OrphanRemoved {})).await
        }
        Err(error) => {
            if control.memory.unknown_resources.is_first_complaint(id) {
                tracing::warn!(instance = %id, %error, "an instance without a row could not be removed yet");
            }
            Ok(())
        }
    }
}

/// Records an event of the engine, because an object without a row has no owner.
async fn record_engine_event(control: &Control, event: Event) -> Result<()> {
    let write = control.store().write(move |tx| tx.record(events::ENGINE, event.clone()));
    write.await.map_err(Error::from)
}

/// The objects without a row that this process has seen.
#[derive(Default)]
pub(crate) struct UnknownResources(Mutex<Sighted>);

#[derive(Default)]
struct Sighted {
    /// Since when, and whether a failed removal was logged.
    orphans: HashMap<InstanceId, (Time, bool)>,
    volumes: HashSet<VolumeId>,
}

impl UnknownResources {
    /// Returns the orphans that have existed for the grace period.
    fn overdue_orphans(&self, orphans: &[InstanceId], now: Time, grace: Duration) -> Vec<InstanceId> {
        let seen = &mut self.lock_sighted().orphans;
        seen.retain(|id, _| orphans.contains(id));
        let old = |id: &&InstanceId| match seen.get(*id) {
            Some((since, _)) => since.after(grace) <= now,
            None => seen.insert((*id).clone(), (now, false)).is_some(),
        };
        orphans.iter().filter(old).cloned().collect()
    }

    /// Forgets since when there are orphans, because the clock jumped.
    pub(super) fn forget(&self) {
        self.lock_sighted().orphans.clear();
    }

    /// Returns whether a failed removal of this orphan was not logged yet.
    fn is_first_complaint(&self, id: &InstanceId) -> bool {
        self.lock_sighted().orphans.get_mut(id).is_some_and(|(_, logged)| !std::mem::replace(logged, true))
    }

    /// Returns the unknown volumes that were not reported yet.
    fn unreported_volumes(&self, present: &[VolumeId]) -> Vec<VolumeId> {
        let seen = &mut self.lock_sighted().volumes;
        seen.retain(|id| present.contains(id));
        present.iter().filter(|id| seen.insert((*id).clone())).cloned().collect()
    }

    fn lock_sighted(&self) -> parking_lot::MutexGuard<'_, Sighted> {
        self.0.lock()
    }
}
