//! STORAGE_DETACH: lets everybody leave the volume, unmounts it from every node and restarts the nodes, unless it is done live.

use tarn_driver::ObservedInstance;
use tarn_model::requests::{Request, RequestType};
use tarn_store::{Tx, attachments};

use super::attach_storage::{keep_attached, nodes_stay, restart_without, run_again, settle_cluster, unmount};
use super::release_volume::release;
use super::undo_mounts::{mount_again, restart_again};
use super::{Commit, Context, Definition, Failure, Next, Step, Undo, Work, nodes};
use crate::Result;

pub(super) const DEFINITION: Definition = Definition {
    kind: RequestType::StorageDetach,
    steps: &[
        Step { name: "release", run: release, undo: Undo::None("processes that were ended do not come back") },
        Step { name: "unmount", run: unmount, undo: Undo::With(mount_again) },
        Step { name: "restart", run: restart_without, undo: Undo::With(restart_again) },
        Step { name: "confirm", run: confirm, undo: Undo::None("it only looks, and commits what it saw") },
    ],
    completed: "The storage is detached.",
    takes_notes: true,
    failed,
};

fn confirm(ctx: Context<'_>) -> Work<'_> {
    let (cluster, volume) = (ctx.cluster().clone(), ctx.volume().clone());
    Box::pin(async move {
        let nodes = nodes::read(ctx).await?;
        // Only who was restarted has to run. One that ended otherwise has no volumes, and its end is for others to tell.
        let must_run = !nodes_stay(ctx).await?;
        if must_run {
            nodes::bring_back(ctx, &nodes, None).await?;
        }
        let is_without = |seen: ObservedInstance| !seen.volumes.contains(ctx.volume());
        for (node, seen) in nodes.instances.iter().zip(nodes::observe_all(ctx, &nodes).await?) {
            if !seen.filter(|seen| seen.running).map_or(!must_run, is_without) {
                return Err(Failure::Permanent(format!("node {} does not run without the volume", node.name())));
            }
        }
        let commit: Commit = Box::new(move |tx| {
            attachments::remove(tx, &cluster, &volume)?;
            run_again(tx, &cluster, "storage.detached")?;
            Ok(Next::Done)
        });
        Ok(commit)
    })
}

fn failed(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    if let Some(cluster) = &request.cluster {
        keep_attached(tx, cluster)?;
    }
    settle_cluster(request, tx, reason)
}
