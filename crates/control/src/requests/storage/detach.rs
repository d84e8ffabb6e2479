//! STORAGE_DETACH: ends the users of the volume, unmounts it from every node and restarts the nodes, unless it is done
//! live.

use tarn_driver::ObservedInstance;
use tarn_model::requests::{Request, RequestType};
use tarn_store::{Tx, attachments};

use super::attach::{
    end_restarting, keep_attached, keeps_nodes_running, restart_without_volume, settle_cluster, unmount_volume,
};
use super::end_users::end_volume_users;
use super::undo_mounts::{mount_again, restart_again};
use crate::Result;
use crate::requests::clusters::nodes;
use crate::requests::{Commit, Context, Definition, Failure, Next, Step, Undo, Work};

pub(in crate::requests) const DEFINITION: Definition = Definition {
    kind: RequestType::StorageDetach,
    steps: &[
        Step { name: "release", run: end_volume_users, undo: Undo::None("ended processes do not come back") },
        Step { name: "unmount", run: unmount_volume, undo: Undo::With(mount_again) },
        Step { name: "restart", run: restart_without_volume, undo: Undo::With(restart_again) },
        Step { name: "confirm", run: confirm_detached, undo: Undo::None("it only observes and commits") },
    ],
    completed: "The storage is detached.",
    takes_notes: true,
    failed: fail_detach,
};

fn confirm_detached(ctx: Context<'_>) -> Work<'_> {
    let (cluster, volume) = (ctx.cluster().clone(), ctx.volume().clone());
    Box::pin(async move {
        let nodes = nodes::read_nodes(ctx).await?;
        // Only restarted nodes have to run. A node that ended otherwise has no volumes, and the reconciler reports its
        // end.
        let must_run = !keeps_nodes_running(ctx).await?;
        if must_run {
            nodes::restart_rebooted(ctx, &nodes, None).await?;
        }
        let is_without = |seen: ObservedInstance| !seen.volumes.contains(ctx.volume());
        for (node, seen) in nodes.instances.iter().zip(nodes::observe_all(ctx, &nodes).await?) {
            if !seen.filter(|seen| seen.running).map_or(!must_run, is_without) {
                return Err(Failure::Permanent(format!("node {} is not running without the volume", node.name())));
            }
        }
        let commit: Commit = Box::new(move |tx| {
            attachments::remove(tx, &cluster, &volume)?;
            end_restarting(tx, &cluster, "storage.detached")?;
            Ok(Next::Done)
        });
        Ok(commit)
    })
}

fn fail_detach(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    if let Some(cluster) = &request.cluster {
        keep_attached(tx, cluster)?;
    }
    settle_cluster(request, tx, reason)
}
