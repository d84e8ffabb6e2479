//! STORAGE_DETACH: lets everybody leave the volume, unmounts it from every node and restarts the nodes, unless it is done live.

use tarn_driver::ObservedInstance;
use tarn_model::requests::{Request, RequestType};
use tarn_store::{Tx, attachments};

use super::attach_storage::{
    keep_attached, mount, restart_back_with, restart_without, run_again, settle_cluster, unmount,
};
use super::release_volume::release;
use super::{Commit, Context, Definition, Failure, Next, Step, Undo, Work, nodes};
use crate::Result;

pub(super) const DEFINITION: Definition = Definition {
    kind: RequestType::StorageDetach,
    steps: &[
        Step { name: "release", run: release, undo: Undo::None("processes that were ended do not come back") },
        Step { name: "unmount", run: unmount, undo: Undo::With(mount) },
        Step { name: "restart", run: restart_without, undo: Undo::With(restart_back_with) },
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
        let must_run = !nodes.cluster.has_failed();
        let is_without = |seen: &ObservedInstance| (seen.running || !must_run) && !seen.volumes.contains(ctx.volume());
        for (node, seen) in nodes.instances.iter().zip(nodes::observe_all(ctx, &nodes).await?) {
            if !seen.as_ref().map_or(!must_run, is_without) {
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
