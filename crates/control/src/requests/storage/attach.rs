//! STORAGE_ATTACH: mounts the volume on every node and restarts the nodes, unless it is done live.

use tarn_model::events::{ClusterEvent, Event};
use tarn_model::ids::ClusterId;
use tarn_model::lifecycle::State;
use tarn_model::requests::AttachmentChange;
use tarn_model::storage::AttachmentState;
use tarn_store::{Tx, attachments};

use super::undo_mounts::unmount_again;
use crate::Result;
use crate::requests::clusters::nodes;
use crate::requests::{Context, Definition, Failure, Next, StepResult, Undo, act, commit, commit_nothing, step};

pub(in crate::requests) fn definition(change: &AttachmentChange) -> Definition<'_> {
    Definition {
        steps: vec![
            step("mount", act(change, mount_volume), Undo::With(act(change, unmount_again))),
            step("restart", act(change, restart_with_volume), Undo::With(act(change, undo_restart_with_volume))),
            step("confirm", act(change, confirm_attached), Undo::None("it only observes and commits")),
        ],
        completed: "The storage is attached.",
        takes_notes: true,
    }
}

/// Mounts the volume on every running node, unless the nodes are restarted, which mounts it.
async fn mount_volume(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    if keeps_nodes_running(ctx, change).await? {
        let (mut nodes, driver) = (nodes::read_nodes(ctx.control, &change.cluster).await?, ctx.control.driver());
        nodes.instances.retain(|node| node.state == State::Running);
        nodes::restart_rebooted(ctx.control, &nodes, None).await?;
        nodes::for_each_node(&nodes, |node| driver.ensure_mount(&change.volume, &node.id)).await?;
        push_volume_names(ctx, nodes).await;
    }
    commit_nothing()
}

/// Unmounts the volume from every node, unless the nodes are restarted, which unmounts it.
pub(super) async fn unmount_volume(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    if keeps_nodes_running(ctx, change).await? {
        let (nodes, driver) = (nodes::read_nodes(ctx.control, &change.cluster).await?, ctx.control.driver());
        nodes::for_each_node(&nodes, |node| driver.remove_mount(&change.volume, &node.id)).await?;
        push_volume_names(ctx, nodes).await;
    }
    commit_nothing()
}

/// Pushes the name of the volume to the running nodes. A failure does not block the request, because the reconciler
/// pushes again.
pub(super) async fn push_volume_names(ctx: Context<'_>, mut nodes: nodes::Nodes) {
    nodes.instances.retain(|node| node.state == State::Running);
    if let Err(why) = nodes::configure_all(ctx.control, &nodes).await {
        tracing::debug!(request = %ctx.request.id, ?why, "the name of the volume could not be pushed to a node yet");
    }
}

async fn restart_with_volume(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    restart_nodes(ctx, change, 1, true).await
}

pub(super) async fn restart_without_volume(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    restart_nodes(ctx, change, 1, false).await
}

/// Undoes a restart with the volume.
async fn undo_restart_with_volume(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    restart_nodes(ctx, change, 2, false).await
}

/// Restarts every node, unless the nodes keep running.
async fn restart_nodes(ctx: Context<'_>, change: &AttachmentChange, boots_ahead: u32, mounted: bool) -> StepResult {
    if keeps_nodes_running(ctx, change).await? {
        return commit_nothing();
    }
    let volume = Some(&change.volume).filter(|_| mounted);
    nodes::restart_all(ctx.control, &change.cluster, boots_ahead, volume).await
}

/// Returns whether the nodes are not restarted: the request is done live, or the cluster has failed, and then its next
/// restart mounts the right volumes. A cluster does not fail while a request works on it, so all steps see the same
/// result.
pub(super) async fn keeps_nodes_running(ctx: Context<'_>, change: &AttachmentChange) -> StepResult<bool> {
    Ok(change.live || nodes::read_nodes(ctx.control, &change.cluster).await?.cluster.has_failed())
}

async fn confirm_attached(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    let nodes = nodes::read_nodes(ctx.control, &change.cluster).await?;
    nodes::restart_rebooted(ctx.control, &nodes, Some(&change.volume)).await?;
    for (node, seen) in nodes.instances.iter().zip(nodes::observe_all(ctx.control, &nodes).await?) {
        if !seen.is_some_and(|seen| seen.running && seen.volumes.contains(&change.volume)) {
            return Err(Failure::Permanent(format!("node {} is not running with the volume mounted", node.name())));
        }
    }
    let cluster = change.cluster.clone();
    commit(move |tx| {
        keep_attached(tx, &cluster)?;
        end_restarting(tx, &cluster, |state| ClusterEvent::VolumeAttached { state })
    })
}

/// Ends the restart of a cluster, if there was one, and records the event.
pub(super) fn end_restarting(
    tx: &mut Tx<'_>,
    id: &ClusterId,
    event: fn(Option<String>) -> ClusterEvent,
) -> Result<Next> {
    let cluster = nodes::load_nodes(tx, id)?.cluster;
    if cluster.state == State::Restarting {
        return nodes::move_cluster(tx, id, |state| event(Some(state)), State::run, |_| {});
    }
    tx.record(cluster.owner.scope(), Event::Cluster(cluster.id, event(None)))?;
    Ok(Next::Done)
}

pub(in crate::requests) fn fail_attach(
    tx: &mut Tx<'_>,
    change: &AttachmentChange,
    undone: bool,
    reason: &str,
) -> Result<()> {
    let AttachmentChange { volume, cluster, .. } = change;
    // The undo marks the attachment as attached when it had to leave the volume mounted.
    let left = attachments::of_cluster(tx, cluster)?.is_some_and(|held| held.state == AttachmentState::Attached);
    if undone && !left {
        attachments::remove(tx, cluster, volume)?;
    } else {
        keep_attached(tx, cluster)?;
    }
    settle_cluster(tx, cluster, undone, reason)
}

/// Marks a volume as attached: it is, or it is not known where it is mounted. While it counts as attached, it can be
/// detached and is not destroyed.
pub(super) fn keep_attached(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<()> {
    let now = tx.now();
    if let Some(held) = attachments::of_cluster(tx, cluster)? {
        attachments::save(tx, &held.attached(now))?;
    }
    Ok(())
}

/// After a complete undo the nodes run as before. If the undo was abandoned, nodes that were to restart may not run,
/// and the cluster is marked as failed; nodes that were left alone keep running.
pub(super) fn settle_cluster(tx: &mut Tx<'_>, cluster: &ClusterId, undone: bool, reason: &str) -> Result<()> {
    if undone {
        end_restarting(tx, cluster, |state| ClusterEvent::AttachmentUnchanged { state }).map(drop)
    } else {
        nodes::fail_cluster(tx, cluster, reason)
    }
}
