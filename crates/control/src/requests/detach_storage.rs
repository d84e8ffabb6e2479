//! STORAGE_DETACH: unmounts the volume from every node and restarts the nodes, unless it is done live.

use tarn_model::requests::{Request, RequestType};
use tarn_store::{Tx, attachments};

use super::attach_storage::{mount, plan, restart, restart_without, run_again, settle_cluster, unmount};
use super::{Commit, Context, Definition, Failure, Next, Step, Undo, Work, nodes};
use crate::Result;

pub(super) const DEFINITION: Definition = Definition {
    kind: RequestType::StorageDetach,
    steps: &[
        Step { name: "unmount", run: unmount, undo: Undo::With(mount) },
        Step { name: "plan", run: plan, undo: Undo::None("the undo of the restart brings the nodes to their start") },
        Step { name: "restart", run: restart_without, undo: Undo::With(restart) },
        Step { name: "confirm", run: confirm, undo: Undo::None("it only looks, and commits what it saw") },
    ],
    completed: "The storage is detached.",
    failed,
};

fn confirm(ctx: Context<'_>) -> Work<'_> {
    let (cluster, volume) = (ctx.cluster().clone(), ctx.volume().clone());
    Box::pin(async move {
        let nodes = nodes::read(ctx).await?;
        for node in &nodes.instances {
            match ctx.control.driver().observe_instance(&node.id).await? {
                Some(seen) if seen.running && !seen.volumes.contains(ctx.volume()) => {}
                _ => {
                    return Err(Failure::Permanent(format!("node {} does not run without the volume", node.name())));
                }
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
    let now = tx.now();
    if let Some(cluster) = &request.cluster
        && let Some(held) = attachments::of_cluster(tx, cluster)?
    {
        attachments::save(tx, &held.attached(now))?;
    }
    settle_cluster(request, tx, reason)
}
