//! CLUSTER_RESTART: restarts every node with the same disk, address, keys and volume, and confirms that they run.

use tarn_model::Refused;
use tarn_model::events::ClusterEvent;
use tarn_model::ids::{ClusterId, VolumeId};
use tarn_model::lifecycle::State;
use tarn_model::storage::{Volume, VolumeState};
use tarn_store::{Tx, attachments, instances};

use super::nodes;
use crate::requests::storage::create::load_volume;
use crate::requests::{Context, Definition, Failure, StepResult, Undo, act, commit, step};
use crate::{Control, Result};

pub(in crate::requests) fn definition(cluster: &ClusterId) -> Definition<'_> {
    Definition {
        steps: vec![
            step("restart", act(cluster, restart_all_nodes), Undo::None("a stop cannot be undone")),
            step("confirm", act(cluster, confirm_restarted), Undo::None("it only observes and commits")),
        ],
        completed: "The cluster is running again.",
        takes_notes: true,
    }
}

async fn restart_all_nodes(ctx: Context<'_>, cluster: &ClusterId) -> StepResult {
    let volume = volume_to_mount(ctx.control, cluster).await?;
    nodes::restart_all(ctx.control, cluster, 1, volume.as_ref()).await
}

/// Returns the volume that the nodes are started with.
async fn volume_to_mount(control: &Control, cluster: &ClusterId) -> StepResult<Option<VolumeId>> {
    let read = control.store().read(|tx| -> Result<Option<Volume>> {
        match attachments::of_cluster(tx, cluster)? {
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

async fn confirm_restarted(ctx: Context<'_>, cluster: &ClusterId) -> StepResult {
    let nodes = nodes::read_nodes(ctx.control, cluster).await?;
    nodes::restart_rebooted(ctx.control, &nodes, volume_to_mount(ctx.control, cluster).await?.as_ref()).await?;
    for (node, seen) in nodes.instances.iter().zip(nodes::observe_all(ctx.control, &nodes).await?) {
        if !seen.is_some_and(|seen| seen.running && seen.boot == node.boot) {
            return Err(Failure::Permanent(format!("node {} stopped again right after its restart", node.name())));
        }
    }
    let cluster = cluster.clone();
    let restarted = |state| ClusterEvent::Restarted { state };
    commit(move |tx| nodes::move_cluster(tx, &cluster, restarted, State::run, |_| {}))
}

/// It is not known which nodes run, so all count as failed; they keep their capacity. The number of the failed boot is
/// used up: a later restart must be a new boot for every node.
pub(in crate::requests) fn fail_restart(tx: &mut Tx<'_>, cluster: &ClusterId, reason: &str) -> Result<()> {
    for mut node in instances::of_cluster(tx, cluster)? {
        node.boot += 1;
        instances::save(tx, &node)?;
    }
    nodes::fail_cluster(tx, cluster, &format!("it could not be restarted: {reason}. Restart it again, or destroy it"))
}
