//! What several kinds of requests do with the nodes of a cluster.

use std::future::Future;

use futures::future::try_join_all;
use tarn_driver::{End, InstanceSpec, ObservedInstance};
use tarn_model::Refused;
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::events::{ClusterEvent, Event, InstanceEvent, InstanceStop};
use tarn_model::ids::{ClusterId, VolumeId};
use tarn_model::lifecycle::State;
use tarn_store::{Tx, clusters, instances};

use crate::requests::{Failure, Next, StepResult, commit};
use crate::{Control, Error, Result, access};

/// A cluster with its nodes.
pub(in crate::requests) struct Nodes {
    pub(in crate::requests) cluster: Cluster,
    pub(in crate::requests) instances: Vec<Instance>,
}

/// Reads a cluster and its nodes.
pub(in crate::requests) async fn read_nodes(control: &Control, id: &ClusterId) -> StepResult<Nodes> {
    Ok(control.store().read(|tx| load_nodes(tx, id)).await?)
}

/// Reads a cluster and its nodes in a transaction.
pub(in crate::requests) fn load_nodes(tx: &mut Tx<'_>, id: &ClusterId) -> Result<Nodes> {
    let cluster = clusters::get(tx, id)?.ok_or_else(|| Error::not_found("cluster", id.as_str()))?;
    let instances = instances::of_cluster(tx, id)?;
    Ok(Nodes { cluster, instances })
}

/// How many nodes are worked on at the same time.
const NODES_AT_ONCE: usize = 32;

/// Runs `act` on every node, several at a time, and returns the results in the order of the nodes.
pub(in crate::requests) async fn for_each_node<'n, T, F>(
    nodes: &'n Nodes,
    act: impl Fn(&'n Instance) -> F,
) -> StepResult<Vec<T>>
where
    F: Future<Output = std::result::Result<T, tarn_driver::Error>>,
{
    let mut done = Vec::with_capacity(nodes.instances.len());
    for some in nodes.instances.chunks(NODES_AT_ONCE) {
        done.extend(try_join_all(some.iter().map(&act)).await?);
    }
    Ok(done)
}

/// Ensures that every node exists and runs in its current boot.
pub(in crate::requests) async fn ensure_all(
    control: &Control,
    nodes: &Nodes,
    volume: Option<&VolumeId>,
) -> StepResult<Vec<ObservedInstance>> {
    let mut done = Vec::with_capacity(nodes.instances.len());
    let specs: Vec<_> =
        nodes.instances.iter().map(|instance| instance_spec(&nodes.cluster, instance, volume)).collect();
    for some in specs.chunks(NODES_AT_ONCE) {
        done.extend(try_join_all(some.iter().map(|spec| control.driver().ensure_instance(spec))).await?);
    }
    Ok(done)
}

/// Starts the nodes again, in their current boot, that ended because the host was rebooted during the request, so that
/// it can continue. Nodes that died otherwise are left alone.
pub(in crate::requests) async fn restart_rebooted(
    control: &Control,
    nodes: &Nodes,
    volume: Option<&VolumeId>,
) -> StepResult<()> {
    let seen = observe_all(control, nodes).await?;
    let ended_by_reboot = |seen: &Option<ObservedInstance>| {
        seen.as_ref().is_some_and(|seen| !seen.running && seen.end == Some(End::MachineRebooted))
    };
    let all = nodes.instances.iter().zip(&seen);
    let instances: Vec<Instance> =
        all.filter(|(_, seen)| ended_by_reboot(seen)).map(|(node, _)| node.clone()).collect();
    if instances.is_empty() {
        return Ok(());
    }
    ensure_all(control, &Nodes { cluster: nodes.cluster.clone(), instances }, volume).await?;
    configure_all(control, nodes).await
}

/// Pushes the access configuration to every node.
pub(in crate::requests) async fn configure_all(control: &Control, nodes: &Nodes) -> StepResult<()> {
    let read = control.store().read(|tx| access::desired_access(tx, &nodes.cluster, &nodes.instances));
    let desired = read.await?;
    for_each_node(nodes, |node| access::push_access(control, &desired, node)).await?;
    Ok(())
}

/// Restarts every node with a boot number `boots_ahead` above the current one, and pushes its access configuration. A
/// restart adds one. The undo of a restart adds two, because it does not know which nodes have seen the boot it undoes.
/// A retry uses the same number.
pub(in crate::requests) async fn restart_all(
    control: &Control,
    cluster: &ClusterId,
    boots_ahead: u32,
    volume: Option<&VolumeId>,
) -> StepResult {
    let mut nodes = read_nodes(control, cluster).await?;
    nodes.instances.iter_mut().for_each(|node| node.boot += boots_ahead);
    let observed = ensure_all(control, &nodes, volume).await?;
    for (node, seen) in nodes.instances.iter_mut().zip(observed) {
        node.private_ip = Some(seen.private_ip);
    }
    configure_all(control, &nodes).await?;
    commit(move |tx| {
        record_stops(tx, &nodes.cluster.id, InstanceStop::Restart)?;
        for mut node in instances::of_cluster(tx, &nodes.cluster.id)? {
            node.boot += boots_ahead;
            let started = nodes.instances.iter().find(|started| started.id == node.id);
            node.private_ip = started.and_then(|started| started.private_ip.clone());
            instances::save(tx, &node)?;
        }
        Ok(Next::Done)
    })
}

/// Removes every node and checks that none is left.
pub(in crate::requests) async fn remove_all_nodes(control: &Control, cluster: &ClusterId) -> StepResult<()> {
    let (nodes, driver) = (read_nodes(control, cluster).await?, control.driver());
    for_each_node(&nodes, |instance| driver.remove_instance(&instance.id)).await?;
    for (instance, seen) in nodes.instances.iter().zip(observe_all(control, &nodes).await?) {
        if seen.is_some() {
            return Err(Failure::Retry(format!("instance {} still exists after its removal", instance.id)));
        }
    }
    Ok(())
}

/// Observes every node.
pub(in crate::requests) async fn observe_all(
    control: &Control,
    nodes: &Nodes,
) -> StepResult<Vec<Option<ObservedInstance>>> {
    for_each_node(nodes, |instance| control.driver().observe_instance(&instance.id)).await
}

/// Records that the current boots of the nodes that hold capacity, and so may have run, have ended.
pub(in crate::requests) fn record_stops(tx: &mut Tx<'_>, id: &ClusterId, end: InstanceStop) -> Result<()> {
    let nodes = load_nodes(tx, id)?;
    for node in nodes.instances.iter().filter(|node| node.holds_capacity) {
        let stopped = InstanceEvent::stopped(node, end);
        tx.record(nodes.cluster.owner.scope(), Event::Instance(node.id.clone(), stopped))?;
    }
    Ok(())
}

/// Moves a cluster and all of its nodes to the state that `transition` returns, and records the event. Nodes that run
/// now were observed to.
pub(in crate::requests) fn move_cluster(
    tx: &mut Tx<'_>,
    id: &ClusterId,
    event: impl Fn(String) -> ClusterEvent,
    transition: fn(State) -> std::result::Result<State, Refused>,
    change: impl Fn(&mut Instance),
) -> Result<Next> {
    let nodes = load_nodes(tx, id)?;
    let now = tx.now();
    let cluster = nodes.cluster.moved(now, transition)?;
    clusters::save(tx, &cluster)?;
    for mut instance in nodes.instances {
        instance.state = cluster.state.clone();
        change(&mut instance);
        instances::save(tx, &instance)?;
        if instance.state == State::Running {
            let started = InstanceEvent::started(&instance);
            tx.record(cluster.owner.scope(), Event::Instance(instance.id, started))?;
        }
    }
    let event = event(cluster.state.name().to_owned());
    tx.record(cluster.owner.scope(), Event::Cluster(cluster.id, event))?;
    Ok(Next::Done)
}

/// Marks a cluster and its nodes as failed, unless they are running or gone.
pub(in crate::requests) fn fail_cluster(tx: &mut Tx<'_>, id: &ClusterId, reason: &str) -> Result<()> {
    let nodes = load_nodes(tx, id)?;
    let now = tx.now();
    let (scope, Ok(cluster)) = (nodes.cluster.owner.clone(), nodes.cluster.moved(now, |state| state.fail(reason)))
    else {
        return Ok(());
    };
    clusters::save(tx, &cluster)?;
    for mut instance in nodes.instances {
        instance.state = cluster.state.clone();
        instances::save(tx, &instance)?;
    }
    let failed = ClusterEvent::Failed { reason: Some(reason.to_owned()) };
    Ok(tx.record(scope.scope(), Event::Cluster(id.clone(), failed))?)
}

fn instance_spec(cluster: &Cluster, instance: &Instance, volume: Option<&VolumeId>) -> InstanceSpec {
    InstanceSpec {
        id: instance.id.clone(),
        cluster: cluster.id.clone(),
        node: instance.node,
        name: instance.name(),
        shape: instance.shape.clone(),
        gpus: instance.gpus.clone(),
        container: cluster.image().map(str::to_owned),
        boot: instance.boot,
        volumes: volume.cloned().into_iter().collect(),
        share: cluster.owner.scope().to_owned(),
    }
}
