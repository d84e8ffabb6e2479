//! Keeps the keys and the names of volumes in running instances up to date: changes take effect within seconds.
//!
//! What was last pushed to each running instance is compared with what is desired now. Where it differs, or where this
//! process has pushed nothing, it is pushed again. The composition root runs [`tick`] after its pause or when
//! [`changed`] completes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tarn_model::Time;
use tarn_model::clusters::Instance;
use tarn_model::ids::{ClusterId, InstanceId};
use tarn_model::lifecycle::State;
use tarn_model::requests::backoff;
use tarn_model::storage::Attachment;
use tarn_store::{Tx, attachments, clusters, instances, ssh_keys};

use crate::access::{self, DesiredAccess};
use crate::{Control, Result};

/// How often everything is compared without a notification: another replica may have changed something.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// How long a push to one instance may take, so that a hanging instance does not delay the others.
const PUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// How many pushes run at the same time.
const PUSHES_AT_ONCE: usize = 32;

/// How many clusters are read at a time.
const CLUSTERS_AT_ONCE: u32 = 100;

/// How long to wait for further changes of a burst.
const BURST_DELAY: Duration = Duration::from_millis(200);

/// Completes when a change may have to be pushed.
pub async fn changed(control: &Control) {
    control.memory.access_changed.notified().await;
    tokio::time::sleep(BURST_DELAY).await;
}

/// Pushes the access configuration to every running instance where it is outdated, and drops what is recorded about
/// nodes that no longer exist.
pub async fn tick(control: &Control) -> Result<Duration> {
    // Taken before the rows are read: what is recorded later belongs to a node that a page may have missed.
    let mut gone = control.memory.pushed_access.recorded();
    let mut stopped = control.memory.unreachable_instances.recorded();
    let (mut pushes, mut after) = (FuturesUnordered::new(), None);
    loop {
        let page = control.store().read(|tx| desired_by_cluster(tx, after.as_ref())).await?;
        for (desired, node) in find_outdated(control, &page.wanted) {
            // Pages do not wait for each other: a push that hangs delays no others while fewer hang than this.
            if pushes.len() >= PUSHES_AT_ONCE {
                pushes.next().await;
            }
            pushes.push(push_to_node(control, desired, node));
        }
        for node in page.wanted.iter().flat_map(|(_, running)| running) {
            stopped.remove(&node.id);
        }
        for node in &page.placed {
            gone.remove(node);
        }
        match page.last {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    while pushes.next().await.is_some() {}
    control.memory.pushed_access.remove(&gone);
    control.memory.unreachable_instances.remove(&stopped);
    let later = control.clock().now();
    Ok(control
        .memory
        .unreachable_instances
        .earliest_try()
        .map_or(RECHECK_INTERVAL, |due| due.until(later).min(RECHECK_INTERVAL)))
}

/// A page of the clusters that hold capacity.
struct DesiredPage {
    /// What the running nodes of each cluster should have.
    wanted: Vec<(Arc<DesiredAccess>, Vec<Instance>)>,
    /// All nodes, including those that do not run.
    placed: Vec<InstanceId>,
    /// The cluster after which the next page begins; `None` on the last page.
    last: Option<ClusterId>,
}

fn desired_by_cluster(tx: &mut Tx<'_>, after: Option<&ClusterId>) -> Result<DesiredPage> {
    let found = clusters::holding(tx, after, CLUSTERS_AT_ONCE)?;
    let last = found.last().map(|cluster| cluster.id.clone());
    let mut nodes = instances::of_clusters(tx, &found)?;
    let placed = nodes.values().flatten().map(|node| node.id.clone()).collect();
    let ids: Vec<&str> = found.iter().map(|cluster| cluster.id.as_str()).collect();
    let held = attachments::of_clusters(tx, &ids)?;
    let held: HashMap<&str, &Attachment> = held.iter().map(|held| (held.cluster.as_str(), held)).collect();
    let (mut wanted, mut saved) = (Vec::new(), BTreeMap::new());
    for cluster in &found {
        let nodes = nodes.remove(&cluster.id).unwrap_or_default();
        let running: Vec<Instance> = nodes.iter().filter(|node| node.state == State::Running).cloned().collect();
        if running.is_empty() {
            continue;
        }
        let scope = cluster.owner.scope();
        if !saved.contains_key(scope) {
            saved.insert(scope.to_owned(), ssh_keys::opening(tx, scope)?);
        }
        let held = held.get(cluster.id.as_str()).copied();
        let desired = access::desired_access_with(tx, cluster, &nodes, &saved[scope], held)?;
        wanted.push((Arc::new(desired), running));
    }
    Ok(DesiredPage { wanted, placed, last })
}

/// Returns the nodes that have something else than they should and are due for a push.
fn find_outdated(
    control: &Control,
    wanted: &[(Arc<DesiredAccess>, Vec<Instance>)],
) -> Vec<(Arc<DesiredAccess>, Instance)> {
    let (now, mut outdated) = (control.clock().now(), Vec::new());
    for (desired, running) in wanted {
        for node in running {
            if control.memory.pushed_access.is_current(&node.id, desired.hash_for(node)) {
                control.memory.unreachable_instances.clear_failures(&node.id);
            } else if control.memory.unreachable_instances.next_try(&node.id).is_none_or(|due| due <= now) {
                outdated.push((desired.clone(), node.clone()));
            }
        }
    }
    outdated
}

async fn push_to_node(control: &Control, desired: Arc<DesiredAccess>, node: Instance) {
    let why = match tokio::time::timeout(PUSH_TIMEOUT, access::push_access(control, &desired, &node)).await {
        Ok(Ok(())) => {
            if control.memory.unreachable_instances.clear_failures(&node.id) {
                tracing::info!(instance = %node.id, "its keys were changed after earlier failures");
            }
            return;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it did not answer within {} seconds", PUSH_TIMEOUT.as_secs()),
    };
    if control.memory.unreachable_instances.record_failure(&node.id, control.clock().now(), control.ids().bits()) == 1 {
        tracing::warn!(instance = %node.id, why, "its keys could not be changed; the push is retried");
    }
}

/// The instances that could not be reached: how often in a row, and when the next try is due.
#[derive(Default)]
pub(crate) struct UnreachableInstances(Mutex<HashMap<InstanceId, (u32, Time)>>);

impl UnreachableInstances {
    /// Records a failure, and returns how many there were in a row.
    fn record_failure(&self, node: &InstanceId, now: Time, chance: u64) -> u32 {
        let mut all = self.lock_all();
        let (failures, due) = all.entry(node.clone()).or_insert((0, now));
        *failures = failures.saturating_add(1);
        *due = now.after(backoff(*failures, chance));
        *failures
    }

    fn clear_failures(&self, node: &InstanceId) -> bool {
        self.lock_all().remove(node).is_some()
    }

    fn next_try(&self, node: &InstanceId) -> Option<Time> {
        self.lock_all().get(node).map(|(_, due)| *due)
    }

    fn earliest_try(&self) -> Option<Time> {
        self.lock_all().values().map(|(_, due)| *due).min()
    }

    fn recorded(&self) -> BTreeSet<InstanceId> {
        self.lock_all().keys().cloned().collect()
    }

    fn remove(&self, gone: &BTreeSet<InstanceId>) {
        self.lock_all().retain(|node, _| !gone.contains(node));
    }

    fn lock_all(&self) -> parking_lot::MutexGuard<'_, HashMap<InstanceId, (u32, Time)>> {
        self.0.lock()
    }
}
