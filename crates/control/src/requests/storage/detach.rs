//! STORAGE_DETACH: ends the users of the volume, unmounts it from every node and restarts the nodes, unless it is done
//! live.

use tarn_driver::ObservedInstance;
use tarn_model::events::ClusterEvent;
use tarn_model::requests::AttachmentChange;
use tarn_store::{Tx, attachments};

use super::attach::{
    end_restarting, keep_attached, keeps_nodes_running, restart_without_volume, settle_cluster, unmount_volume,
};
use super::end_users::end_volume_users;
use super::undo_mounts::{mount_again, restart_again};
use crate::Result;
use crate::requests::clusters::nodes;
use crate::requests::{Context, Definition, Failure, StepResult, Undo, act, commit, step};

pub(in crate::requests) fn definition(change: &AttachmentChange) -> Definition<'_> {
    Definition {
        steps: vec![
            step("release", act(change, end_volume_users), Undo::None("ended processes do not come back")),
            step("unmount", act(change, unmount_volume), Undo::With(act(change, mount_again))),
            step("restart", act(change, restart_without_volume), Undo::With(act(change, restart_again))),
            step("confirm", act(change, confirm_detached), Undo::None("it only observes and commits")),
        ],
        completed: "The storage is detached.",
        takes_notes: true,
    }
}

async fn confirm_detached(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    let nodes = nodes::read_nodes(ctx.control, &change.cluster).await?;
    // Only restarted nodes have to run. A node that ended otherwise has no volumes, and the reconciler reports its end.
    let must_run = !keeps_nodes_running(ctx, change).await?;
    if must_run {
        nodes::restart_rebooted(ctx.control, &nodes, None).await?;
    }
    let is_without = |seen: ObservedInstance| !seen.volumes.contains(&change.volume);
    for (node, seen) in nodes.instances.iter().zip(nodes::observe_all(ctx.control, &nodes).await?) {
        if !seen.filter(|seen| seen.running).map_or(!must_run, is_without) {
            return Err(Failure::Permanent(format!("node {} is not running without the volume", node.name())));
        }
    }
    let AttachmentChange { volume, cluster, .. } = change.clone();
    commit(move |tx| {
        attachments::remove(tx, &cluster, &volume)?;
        end_restarting(tx, &cluster, |state| ClusterEvent::VolumeDetached { state })
    })
}

pub(in crate::requests) fn fail_detach(
    tx: &mut Tx<'_>,
    change: &AttachmentChange,
    undone: bool,
    reason: &str,
) -> Result<()> {
    keep_attached(tx, &change.cluster)?;
    settle_cluster(tx, &change.cluster, undone, reason)
}
