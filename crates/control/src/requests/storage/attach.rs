//! STORAGE_ATTACH: mounts the volume on every node and restarts the nodes, unless it is done live.

use tarn_model::ids::ClusterId;
use tarn_model::lifecycle::State;
use tarn_model::requests::{Request, RequestType};
use tarn_model::storage::AttachmentState;
use tarn_store::{Tx, attachments, events};

use super::undo_mounts::unmount_again;
use crate::requests::clusters::nodes;
use crate::requests::{Commit, Context, Definition, Failure, Next, Step, Undo, Work, commit_nothing};
use crate::{Error, Result};

pub(in crate::requests) const DEFINITION: Definition = Definition {
    kind: RequestType::StorageAttach,
    steps: &[
        Step { name: "mount", run: mount_volume, undo: Undo::With(unmount_again) },
        Step { name: "restart", run: restart_with_volume, undo: Undo::With(undo_restart_with_volume) },
        Step { name: "confirm", run: confirm_attached, undo: Undo::None("it only observes and commits") },
    ],
    completed: "The storage is attached.",
    takes_notes: true,
    failed: fail_attach,
};

/// Mounts the volume on every running node, unless the nodes are restarted, which mounts it.
fn mount_volume(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        if keeps_nodes_running(ctx).await? {
            let (mut nodes, driver) = (nodes::read_nodes(ctx).await?, ctx.control.driver());
            nodes.instances.retain(|node| node.state == State::Running);
            nodes::restart_rebooted(ctx, &nodes, None).await?;
            nodes::for_each_node(&nodes, |node| driver.ensure_mount(ctx.volume(), &node.id)).await?;
            push_volume_names(ctx, nodes).await;
        }
        Ok(commit_nothing())
    })
}

/// Unmounts the volume from every node, unless the nodes are restarted, which unmounts it.
pub(super) fn unmount_volume(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        if keeps_nodes_running(ctx).await? {
            let (nodes, driver) = (nodes::read_nodes(ctx).await?, ctx.control.driver());
            nodes::for_each_node(&nodes, |node| driver.remove_mount(ctx.volume(), &node.id)).await?;
            push_volume_names(ctx, nodes).await;
        }
        Ok(commit_nothing())
    })
}

/// Pushes the name of the volume to the running nodes. A failure does not block the request, because the reconciler
/// pushes again.
pub(super) async fn push_volume_names(ctx: Context<'_>, mut nodes: nodes::Nodes) {
    nodes.instances.retain(|node| node.state == State::Running);
    if let Err(why) = nodes::configure_all(ctx, &nodes).await {
        tracing::debug!(request = %ctx.request.id, ?why, "the name of the volume could not be pushed to a node yet");
    }
}

fn restart_with_volume(ctx: Context<'_>) -> Work<'_> {
    restart_nodes(ctx, 1, true)
}

pub(super) fn restart_without_volume(ctx: Context<'_>) -> Work<'_> {
    restart_nodes(ctx, 1, false)
}

/// Undoes a restart with the volume.
fn undo_restart_with_volume(ctx: Context<'_>) -> Work<'_> {
    restart_nodes(ctx, 2, false)
}

/// Restarts every node, unless the nodes keep running.
fn restart_nodes(ctx: Context<'_>, boots_ahead: u32, with_volume: bool) -> Work<'_> {
    Box::pin(async move {
        if keeps_nodes_running(ctx).await? {
            Ok(commit_nothing())
        } else {
            nodes::restart_all(ctx, boots_ahead, Some(ctx.volume()).filter(|_| with_volume)).await
        }
    })
}

/// Returns whether the request is done live. Without an attachment the nodes are left alone, as if it were.
pub(super) async fn is_live(ctx: Context<'_>) -> std::result::Result<bool, Failure> {
    let held = ctx.control.store().read(|tx| attachments::of_cluster(tx, ctx.cluster())).await;
    Ok(held.map_err(Error::from)?.is_none_or(|held| held.live))
}

/// Returns whether the nodes are not restarted: the request is done live, or the cluster has failed, and then its next
/// restart mounts the right volumes. A cluster does not fail while a request works on it, so all steps see the same
/// result.
pub(super) async fn keeps_nodes_running(ctx: Context<'_>) -> std::result::Result<bool, Failure> {
    Ok(is_live(ctx).await? || nodes::read_nodes(ctx).await?.cluster.has_failed())
}

fn confirm_attached(ctx: Context<'_>) -> Work<'_> {
    let cluster = ctx.cluster().clone();
    Box::pin(async move {
        let nodes = nodes::read_nodes(ctx).await?;
        nodes::restart_rebooted(ctx, &nodes, Some(ctx.volume())).await?;
        for (node, seen) in nodes.instances.iter().zip(nodes::observe_all(ctx, &nodes).await?) {
            if !seen.is_some_and(|seen| seen.running && seen.volumes.contains(ctx.volume())) {
                return Err(Failure::Permanent(format!("node {} is not running with the volume mounted", node.name())));
            }
        }
        let commit: Commit = Box::new(move |tx| {
            let now = tx.now();
            if let Some(held) = attachments::of_cluster(tx, &cluster)? {
                attachments::save(tx, &held.attached(now))?;
            }
            end_restarting(tx, &cluster, "storage.attached")?;
            Ok(Next::Done)
        });
        Ok(commit)
    })
}

/// Ends the restart of a cluster, if there was one, and records the event.
pub(super) fn end_restarting(tx: &mut Tx<'_>, id: &ClusterId, verb: &str) -> Result<()> {
    let cluster = nodes::load_nodes(tx, id)?.cluster;
    match cluster.state {
        State::Restarting => nodes::move_cluster(tx, id, verb, State::run, |_| {}),
        _ => Ok(events::record(tx, events::ENGINE, cluster.owner.scope(), id.as_str(), verb, &serde_json::json!({}))?),
    }
}

fn fail_attach(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    let (Some(cluster), Some(volume)) = (&request.cluster, &request.volume) else { return Ok(()) };
    // The undo marks the attachment as attached when it had to leave the volume mounted.
    let left = attachments::of_cluster(tx, cluster)?.is_some_and(|held| held.state == AttachmentState::Attached);
    match request.step {
        0 if !left => attachments::remove(tx, cluster, volume)?,
        _ => keep_attached(tx, cluster)?,
    }
    settle_cluster(request, tx, reason)
}

/// It is not known where the volume is mounted. While it counts as attached, it can be detached and is not destroyed.
pub(super) fn keep_attached(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<()> {
    let now = tx.now();
    if let Some(held) = attachments::of_cluster(tx, cluster)? {
        attachments::save(tx, &held.attached(now))?;
    }
    Ok(())
}

/// After a complete undo the nodes run as before. If the undo was abandoned, nodes that were to restart may not run,
/// and the cluster is marked as failed; nodes that were left alone keep running.
pub(super) fn settle_cluster(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    let Some(cluster) = &request.cluster else { return Ok(()) };
    match request.step {
        0 => end_restarting(tx, cluster, "storage.attachment_unchanged"),
        _ => nodes::fail_cluster(tx, cluster, reason),
    }
}
