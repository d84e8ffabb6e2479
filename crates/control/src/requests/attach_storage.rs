//! STORAGE_ATTACH: mounts the volume on every node and restarts the nodes, unless it is done live.

use futures::future::try_join_all;
use tarn_model::lifecycle::State;
use tarn_model::requests::{Request, RequestType};
use tarn_store::{Tx, attachments, events, instances};

use super::{Commit, Context, Definition, Failure, Next, Step, Undo, Work, nodes};
use crate::Result;

pub(super) const DEFINITION: Definition = Definition {
    kind: RequestType::StorageAttach,
    steps: &[
        Step { name: "mount", run: mount, undo: Undo::With(unmount) },
        Step { name: "plan", run: plan, undo: Undo::None("the undo of the restart brings the nodes to their start") },
        Step { name: "restart", run: restart, undo: Undo::With(restart_without) },
        Step { name: "confirm", run: confirm, undo: Undo::None("it only looks, and commits what it saw") },
    ],
    completed: "The storage is attached.",
    failed,
};

/// Mounts the volume of the request on every node.
pub(super) fn mount(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        let (nodes, driver) = (nodes::read(ctx).await?, ctx.control.driver());
        try_join_all(nodes.instances.iter().map(|node| driver.ensure_mount(ctx.volume(), &node.id))).await?;
        Ok(super::nothing())
    })
}

/// Unmounts the volume of the request from every node.
pub(super) fn unmount(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        let (nodes, driver) = (nodes::read(ctx).await?, ctx.control.driver());
        try_join_all(nodes.instances.iter().map(|node| driver.remove_mount(ctx.volume(), &node.id))).await?;
        Ok(super::nothing())
    })
}

/// Gives every node the number of its next start, unless it is done live. From here on the nodes will restart, forward or
/// back.
pub(super) fn plan(ctx: Context<'_>) -> Work<'_> {
    let cluster = ctx.cluster().clone();
    Box::pin(async move {
        let commit: Commit = Box::new(move |tx| {
            let live = attachments::of_cluster(tx, &cluster)?.is_none_or(|held| held.live);
            for mut node in instances::of_cluster(tx, &cluster)? {
                node.boot += u32::from(!live);
                instances::save(tx, &node)?;
            }
            Ok(Next::Done)
        });
        Ok(commit)
    })
}

/// Restarts every node with the volume.
pub(super) fn restart(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        let nodes = nodes::read(ctx).await?;
        nodes::ensure_all(ctx, &nodes, Some(ctx.volume())).await?;
        Ok(super::nothing())
    })
}

/// Restarts every node without the volume.
pub(super) fn restart_without(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        let nodes = nodes::read(ctx).await?;
        nodes::ensure_all(ctx, &nodes, None).await?;
        Ok(super::nothing())
    })
}

fn confirm(ctx: Context<'_>) -> Work<'_> {
    let cluster = ctx.cluster().clone();
    Box::pin(async move {
        let nodes = nodes::read(ctx).await?;
        for node in &nodes.instances {
            match ctx.control.driver().observe_instance(&node.id).await? {
                Some(seen) if seen.running && seen.volumes.contains(ctx.volume()) => {}
                _ => {
                    return Err(Failure::Permanent(format!("node {} does not run with the volume", node.name())));
                }
            }
        }
        let commit: Commit = Box::new(move |tx| {
            let now = tx.now();
            if let Some(held) = attachments::of_cluster(tx, &cluster)? {
                attachments::save(tx, &held.attached(now))?;
            }
            run_again(tx, &cluster, "storage.attached")?;
            Ok(Next::Done)
        });
        Ok(commit)
    })
}

/// Ends the restarting of a cluster, if it was restarted at all, and writes down what happened.
pub(super) fn run_again(tx: &mut Tx<'_>, id: &tarn_model::ids::ClusterId, verb: &str) -> Result<()> {
    let cluster = nodes::load(tx, id)?.cluster;
    match cluster.state {
        State::Restarting => nodes::move_all(tx, id, verb, State::run, |_| {}),
        _ => Ok(events::record(tx, events::ENGINE, cluster.owner.scope(), id.as_str(), verb, &serde_json::json!({}))?),
    }
}

fn failed(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    let (Some(cluster), Some(volume)) = (&request.cluster, &request.volume) else {
        return Ok(());
    };
    attachments::remove(tx, cluster, volume)?;
    settle_cluster(request, tx, reason)
}

/// After everything was undone the nodes run as before; if the undo itself was given up, nobody knows, and the cluster has
/// failed.
pub(super) fn settle_cluster(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    let Some(cluster) = &request.cluster else { return Ok(()) };
    match request.step {
        0 => run_again(tx, cluster, "storage.attachment_unchanged"),
        _ => nodes::fail(tx, cluster, reason),
    }
}
