//! CLUSTER_RESTART: restarts every node with the same disk, address, keys and volume, and confirms that they run.

use tarn_model::Refused;
use tarn_model::ids::VolumeId;
use tarn_model::lifecycle::State;
use tarn_model::requests::{Request, RequestType};
use tarn_model::storage::{Volume, VolumeState};
use tarn_store::{Tx, attachments, instances};

use super::nodes;
use crate::Result;
use crate::requests::storage::create::load_volume;
use crate::requests::{Commit, Context, Definition, Failure, Next, Step, Undo, Work};

pub(in crate::requests) const DEFINITION: Definition = Definition {
    kind: RequestType::ClusterRestart,
    steps: &[
        Step { name: "restart", run: restart_all_nodes, undo: Undo::None("a stop cannot be undone") },
        Step { name: "confirm", run: confirm_restarted, undo: Undo::None("it only observes and commits") },
    ],
    completed: "The cluster is running again.",
    takes_notes: true,
    failed: fail_restart,
};

fn restart_all_nodes(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        let volume = volume_to_mount(ctx).await?;
        nodes::restart_all(ctx, 1, volume.as_ref()).await
    })
}

/// Returns the volume that the nodes are started with.
async fn volume_to_mount(ctx: Context<'_>) -> std::result::Result<Option<VolumeId>, Failure> {
    let read = ctx.control.store().read(|tx| -> Result<Option<Volume>> {
        match attachments::of_cluster(tx, ctx.cluster())? {
            Some(held) => load_volume(tx, &held.volume).map(Some),
            None => Ok(None),
        }
    });
    match read.await? {
        // The volume may have failed after the call was accepted.
        Some(Volume { id, state: VolumeState::Failed { reason, .. }, .. }) => {
            let refused = Refused::AttachedStorageFailed { volume: id.to_string(), reason };
            Err(Failure::Permanent(refused.to_string()))
        }
        volume => Ok(volume.map(|volume| volume.id)),
    }
}

fn confirm_restarted(ctx: Context<'_>) -> Work<'_> {
    let cluster = ctx.cluster().clone();
    Box::pin(async move {
        let nodes = nodes::read_nodes(ctx).await?;
        nodes::restart_rebooted(ctx, &nodes, volume_to_mount(ctx).await?.as_ref()).await?;
        for (node, seen) in nodes.instances.iter().zip(nodes::observe_all(ctx, &nodes).await?) {
            if !seen.is_some_and(|seen| seen.running && seen.boot == node.boot) {
                return Err(Failure::Permanent(format!("node {} stopped again right after its restart", node.name())));
            }
        }
        let commit: Commit = Box::new(move |tx| {
            nodes::move_cluster(tx, &cluster, "cluster.restarted", State::run, |_| {})?;
            Ok(Next::Done)
        });
        Ok(commit)
    })
}

/// It is not known which nodes run, so all count as failed; they keep their capacity. The number of the failed boot is
/// used up: a later restart must be a new boot for every node.
fn fail_restart(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    let Some(cluster) = &request.cluster else { return Ok(()) };
    for mut node in instances::of_cluster(tx, cluster)? {
        node.boot += 1;
        instances::save(tx, &node)?;
    }
    nodes::fail_cluster(tx, cluster, &format!("it could not be restarted: {reason}. Restart it again, or destroy it"))
}
