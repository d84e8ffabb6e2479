//! CLUSTER_CLAIM: waits for capacity, pulls the image, creates and configures the instances, and confirms that they
//! run.

use tarn_model::capacity::{self, Claim, Inventory};
use tarn_model::clusters::Instance;
use tarn_model::events::ClusterEvent;
use tarn_model::ids::{ClusterId, RequestId};
use tarn_model::lifecycle::State;
use tarn_store::{Tx, instances, line as rows};

use super::pull_image::{NAME as PULL, pull_image};
use super::{line, nodes};
use crate::requests::{Context, Definition, Failure, Next, StepResult, Undo, act, commit, commit_nothing, step};
use crate::{Error, Result, Settings};

pub(in crate::requests) fn definition(cluster: &ClusterId) -> Definition<'_> {
    Definition {
        steps: vec![
            step("reserve", act(cluster, reserve_capacity), Undo::With(act(cluster, release_reservation))),
            step(PULL, act(cluster, pull_image), Undo::None("images are a cache, which is cleaned up by itself")),
            step("provision", act(cluster, provision_instances), Undo::With(act(cluster, remove_instances))),
            step("configure", act(cluster, configure_instances), Undo::None("it is removed with the instances")),
            step("confirm", act(cluster, confirm_running), Undo::None("it only observes and commits")),
        ],
        completed: "The cluster is running.",
        takes_notes: false,
    }
}

async fn reserve_capacity(ctx: Context<'_>, cluster: &ClusterId) -> StepResult {
    let (board, cluster) = (ctx.control.host_view(), cluster.clone());
    let (installed, present) = (board.inventory(), board.present_inventory());
    let (settings, request) = (ctx.control.settings().clone(), ctx.request.id.clone());
    commit(move |tx| try_reserve(tx, [&installed, &present], &cluster, &request, &settings))
}

fn try_reserve(
    tx: &mut Tx<'_>,
    [installed, present]: [&Inventory; 2],
    id: &ClusterId,
    request: &RequestId,
    settings: &Settings,
) -> Result<Next> {
    let nodes = nodes::load_nodes(tx, id)?;
    // A cluster without an image to pull skips that step.
    let next = match nodes.cluster.wanted_image() {
        Some(_) => Next::DoneUntil(tx.now().after(settings.image_pull_deadline)),
        None => Next::SkipUntil(tx.now().after(settings.work_deadline)),
    };
    if nodes.instances.iter().all(|instance| instance.holds_capacity) {
        return Ok(next);
    }
    if let Some(first) = nodes.instances.first() {
        let claim = Claim { shape: first.shape.clone(), nodes: nodes.cluster.num_nodes };
        if let Err(shortage) = capacity::fits_ever(installed, &claim) {
            // The host has shrunk. A claim that can never be placed must not block the claims behind it.
            let message = format!("the host can no longer hold the cluster: it needs {shortage} when nothing runs");
            return Err(Error::conflict("does_not_fit", message));
        }
    }
    let decision = line::decide(tx, [installed, present], request, &settings.line)?;
    let Some(gpus) = decision.start_of(request).cloned() else {
        rows::set_examined(tx, request)?;
        return Ok(Next::Wait { until: decision.wake_others(tx, request)? });
    };
    let placed = |state| ClusterEvent::Placed { state };
    nodes::move_cluster(tx, id, placed, State::provision, |instance: &mut Instance| {
        instance.holds_capacity = true;
        instance.gpus = gpus.get(instance.node as usize).cloned().unwrap_or_default();
    })?;
    decision.wake_others(tx, request)?;
    Ok(next)
}

async fn release_reservation(_: Context<'_>, cluster: &ClusterId) -> StepResult {
    let cluster = cluster.clone();
    commit(move |tx| release_capacity(tx, &cluster))
}

/// Releases what the nodes of a cluster hold. Call this only after they were observed to be gone.
pub(super) fn release_capacity(tx: &mut Tx<'_>, id: &ClusterId) -> Result<Next> {
    for mut instance in instances::of_cluster(tx, id)? {
        instance.holds_capacity = false;
        instance.gpus.clear();
        instances::save(tx, &instance)?;
    }
    rows::wake(tx)?;
    Ok(Next::Done)
}

async fn provision_instances(ctx: Context<'_>, cluster: &ClusterId) -> StepResult {
    let nodes = nodes::read_nodes(ctx.control, cluster).await?;
    let observed = nodes::ensure_all(ctx.control, &nodes, None).await?;
    let addresses: Vec<String> = observed.into_iter().map(|instance| instance.private_ip).collect();
    let cluster = cluster.clone();
    commit(move |tx| {
        let provisioned = |state| ClusterEvent::Provisioned { state };
        nodes::move_cluster(tx, &cluster, provisioned, State::configure, |instance| {
            instance.private_ip = addresses.get(instance.node as usize).cloned();
        })
    })
}

async fn remove_instances(ctx: Context<'_>, cluster: &ClusterId) -> StepResult {
    nodes::remove_all_nodes(ctx.control, cluster).await?;
    commit_nothing()
}

async fn configure_instances(ctx: Context<'_>, cluster: &ClusterId) -> StepResult {
    let nodes = nodes::read_nodes(ctx.control, cluster).await?;
    nodes::restart_rebooted(ctx.control, &nodes, None).await?;
    nodes::configure_all(ctx.control, &nodes).await?;
    commit_nothing()
}

async fn confirm_running(ctx: Context<'_>, cluster: &ClusterId) -> StepResult {
    let nodes = nodes::read_nodes(ctx.control, cluster).await?;
    nodes::restart_rebooted(ctx.control, &nodes, None).await?;
    for (node, seen) in nodes.instances.iter().zip(nodes::observe_all(ctx.control, &nodes).await?) {
        if !seen.is_some_and(|seen| seen.running) {
            return Err(Failure::Permanent(format!("node {} stopped while it was being set up", node.name())));
        }
    }
    let cluster = cluster.clone();
    let running = |state| ClusterEvent::Running { state };
    commit(move |tx| nodes::move_cluster(tx, &cluster, running, State::run, |_| {}))
}
