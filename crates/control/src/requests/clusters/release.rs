//! CLUSTER_RELEASE: ends the jobs, removes the instances, confirms that they are gone, and releases their capacity.

use tarn_driver::{End, ObservedInstance};
use tarn_model::events::{ClusterEvent, InstanceStop};
use tarn_model::ids::ClusterId;
use tarn_model::lifecycle::State;
use tarn_store::{Tx, attachments, instances};

use super::claim::release_capacity;
use super::nodes;
use crate::Result;
use crate::jobs::queue::cluster_destruction;
use crate::requests::{Context, Definition, StepResult, Undo, act, commit, commit_nothing, step};

pub(in crate::requests) fn definition(cluster: &ClusterId) -> Definition<'_> {
    Definition {
        steps: vec![
            step("end jobs", act(cluster, end_jobs), Undo::None("a stopped job cannot continue")),
            step(
                "remove",
                act(cluster, remove_released_instances),
                Undo::None("an instance that was destroyed on purpose is not created again"),
            ),
        ],
        completed: "The cluster is destroyed.",
        takes_notes: false,
    }
}

/// Jobs were asked to stop when the destruction began. Jobs that do not end in time are ended by force.
async fn end_jobs(ctx: Context<'_>, cluster: &ClusterId) -> StepResult {
    // Nodes that ended with the host do not respond, so there is nothing to wait for.
    let nodes = nodes::read_nodes(ctx.control, cluster).await?;
    let seen = nodes::observe_all(ctx.control, &nodes).await?;
    let down =
        |seen: &Option<ObservedInstance>| seen.as_ref().is_some_and(|seen| seen.end == Some(End::MachineRebooted));
    if seen.iter().all(down) || !cluster_destruction::wait_until_jobs_ended(ctx.control, cluster).await? {
        cluster_destruction::end_jobs_by_force(ctx.control, cluster).await?;
    }
    commit_nothing()
}

async fn remove_released_instances(ctx: Context<'_>, cluster: &ClusterId) -> StepResult {
    nodes::remove_all_nodes(ctx.control, cluster).await?;
    let cluster = cluster.clone();
    commit(move |tx| {
        let destroyed = |state| ClusterEvent::Destroyed { state };
        nodes::record_stops(tx, &cluster, InstanceStop::Destroy)?;
        nodes::move_cluster(tx, &cluster, destroyed, State::gone, |_| {})?;
        if let Some(held) = attachments::of_cluster(tx, &cluster)? {
            attachments::remove(tx, &cluster, &held.volume)?;
        }
        release_capacity(tx, &cluster)
    })
}

/// The capacity stays held, because the instances may still exist. Destroying the cluster again is a new try. Its nodes
/// lose their addresses, because a disk may be gone already and such a cluster must not be restarted.
pub(in crate::requests) fn fail_release(tx: &mut Tx<'_>, cluster: &ClusterId, reason: &str) -> Result<()> {
    for mut node in instances::of_cluster(tx, cluster)? {
        node.private_ip = None;
        instances::save(tx, &node)?;
    }
    nodes::fail_cluster(tx, cluster, &format!("it could not be removed: {reason}; destroy it again"))
}
