//! CLUSTER_RELEASE: ends the jobs, removes the instances, confirms that they are gone, and releases their capacity.

use tarn_driver::{End, ObservedInstance};
use tarn_model::lifecycle::State;
use tarn_model::requests::{Request, RequestType};
use tarn_store::{Tx, attachments, instances};

use super::claim::release_capacity;
use super::nodes;
use crate::Result;
use crate::jobs::queue::cluster_destruction;
use crate::requests::{Commit, Context, Definition, Next, Step, Undo, Work, commit_nothing};

pub(in crate::requests) const DEFINITION: Definition = Definition {
    kind: RequestType::ClusterRelease,
    steps: &[
        Step { name: "end jobs", run: end_jobs, undo: Undo::None("a stopped job cannot continue") },
        Step {
            name: "remove",
            run: remove_released_instances,
            undo: Undo::None("an instance that was destroyed on purpose is not created again"),
        },
        Step { name: "confirm", run: confirm_released, undo: Undo::None("it only commits") },
    ],
    completed: "The cluster is destroyed.",
    takes_notes: false,
    failed: fail_release,
};

/// Jobs were asked to stop when the destruction began. Jobs that do not end in time are ended by force.
fn end_jobs(ctx: Context<'_>) -> Work<'_> {
    let cluster = ctx.cluster();
    Box::pin(async move {
        // Nodes that ended with the host do not respond, so there is nothing to wait for.
        let nodes = nodes::read_nodes(ctx).await?;
        let seen = nodes::observe_all(ctx, &nodes).await?;
        let down =
            |seen: &Option<ObservedInstance>| seen.as_ref().is_some_and(|seen| seen.end == Some(End::MachineRebooted));
        if seen.iter().all(down) || !cluster_destruction::wait_until_jobs_ended(ctx.control, cluster).await? {
            cluster_destruction::end_jobs_by_force(ctx.control, cluster).await?;
        }
        Ok(commit_nothing())
    })
}

fn remove_released_instances(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        nodes::remove_all_nodes(ctx).await?;
        Ok(commit_nothing())
    })
}

fn confirm_released(ctx: Context<'_>) -> Work<'_> {
    let cluster = ctx.cluster().clone();
    Box::pin(async move {
        let commit: Commit = Box::new(move |tx| {
            nodes::move_cluster(tx, &cluster, "cluster.destroyed", State::gone, |_| {})?;
            release_capacity(tx, &cluster)?;
            if let Some(held) = attachments::of_cluster(tx, &cluster)? {
                attachments::remove(tx, &cluster, &held.volume)?;
            }
            Ok(Next::Done)
        });
        Ok(commit)
    })
}

/// The capacity stays held, because the instances may still exist. Destroying the cluster again is a new try. Its nodes
/// lose their addresses, because a disk may be gone already and such a cluster must not be restarted.
fn fail_release(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    let Some(cluster) = &request.cluster else { return Ok(()) };
    for mut node in instances::of_cluster(tx, cluster)? {
        node.private_ip = None;
        instances::save(tx, &node)?;
    }
    nodes::fail_cluster(tx, cluster, &format!("it could not be removed: {reason}; destroy it again"))
}
