//! CLUSTER_RELEASE: lets jobs end, removes the instances, sees that they are gone, and gives their capacity back.

use tarn_driver::{End, ObservedInstance};
use tarn_model::lifecycle::State;
use tarn_model::requests::{Request, RequestType};
use tarn_store::{Tx, attachments, instances};

use super::claim_cluster::release_capacity;
use super::{Commit, Context, Definition, Next, Step, Undo, Work, nodes};
use crate::Result;
use crate::jobs::queue::cluster_destruction;

pub(super) const DEFINITION: Definition = Definition {
    kind: RequestType::ClusterRelease,
    steps: &[
        Step { name: "end jobs", run: end_jobs, undo: Undo::None("what has been stopped cannot go on") },
        Step { name: "remove", run: remove, undo: Undo::None("what was destroyed on purpose is not made again") },
        Step { name: "confirm", run: confirm, undo: Undo::None("it only commits what was seen") },
    ],
    completed: "The cluster is destroyed.",
    takes_notes: false,
    failed,
};

/// Jobs were told to stop when the destruction began. Those that do not end in time are ended by force.
fn end_jobs(ctx: Context<'_>) -> Work<'_> {
    let cluster = ctx.cluster();
    Box::pin(async move {
        // Nobody answers on nodes that ended with the machine, so there is nothing to wait for.
        let nodes = nodes::read(ctx).await?;
        let seen = nodes::observe_all(ctx, &nodes).await?;
        let down =
            |seen: &Option<ObservedInstance>| seen.as_ref().is_some_and(|seen| seen.end == Some(End::MachineRebooted));
        if seen.iter().all(down) || !cluster_destruction::wait_until_jobs_ended(ctx.control, cluster).await? {
            cluster_destruction::end_jobs_by_force(ctx.control, cluster).await?;
        }
        Ok(super::nothing())
    })
}

fn remove(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        nodes::remove_all(ctx).await?;
        Ok(super::nothing())
    })
}

fn confirm(ctx: Context<'_>) -> Work<'_> {
    let cluster = ctx.cluster().clone();
    Box::pin(async move {
        let commit: Commit = Box::new(move |tx| {
            nodes::move_all(tx, &cluster, "cluster.destroyed", State::gone, |_| {})?;
            release_capacity(tx, &cluster)?;
            if let Some(held) = attachments::of_cluster(tx, &cluster)? {
                attachments::remove(tx, &cluster, &held.volume)?;
            }
            Ok(Next::Done)
        });
        Ok(commit)
    })
}

/// The capacity stays taken: nobody has seen the instances go. Destroying the cluster again tries again. Its nodes have no
/// address any more, because a disk may be gone already: such a cluster must not be restarted.
fn failed(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    let Some(cluster) = &request.cluster else { return Ok(()) };
    for mut node in instances::of_cluster(tx, cluster)? {
        node.private_ip = None;
        instances::save(tx, &node)?;
    }
    nodes::fail(tx, cluster, &format!("it could not be removed: {reason}; destroy it again"))
}
