//! Attaching volumes to clusters and detaching them.

use tarn_model::access::Action;
use tarn_model::clusters::Cluster;
use tarn_model::events::VolumeEvent;
use tarn_model::ids::{ClusterId, VolumeId};
use tarn_model::lifecycle::State;
use tarn_model::requests::{AttachmentChange, RequestKind};
use tarn_model::{Refused, Time};
use tarn_store::{Tx, attachments, clusters, instances};

use super::{find_volume, record_volume_event};
use crate::operations::{Accepted, clusters as cluster_operations, request_owner};
use crate::requests::start_request;
use crate::volume_users::{self, NodeVolumeUser};
use crate::{Caller, Control, Eligibility, Error, Result};

/// Begins to attach a volume to a cluster.
pub async fn attach(
    control: &Control,
    caller: &Caller,
    volume: &str,
    cluster: &str,
    live: bool,
) -> Result<Accepted<ClusterId, VolumeId>> {
    let (me, volume, cluster) = (caller.clone(), volume.to_owned(), cluster.to_owned());
    let (ours, limit) = (control.clone(), control.settings().work_deadline);
    let write = control.write(caller, move |tx| {
        let now = tx.now();
        let volume = find_volume(tx, &me, &volume)?;
        let cluster = cluster_operations::find_cluster(tx, &me, &cluster)?;
        me.must_be_allowed(tx, Action::AttachVolume, &volume.owner, volume.id.as_str())?;
        me.must_be_allowed(tx, Action::AttachToCluster, &cluster.owner, cluster.id.as_str())?;
        check_eligibility(&ours, &cluster, live)?;
        let held = attachments::of_cluster(tx, &cluster.id)?;
        let attachment = volume.begin_attach(&cluster, held.as_ref(), live, now)?;
        attachments::insert(tx, &attachment)?;
        mark_restarting(tx, cluster.clone(), live, now)?;
        record_volume_event(tx, &volume, VolumeEvent::AttachBegun { cluster: cluster.id.clone(), live })?;
        let change = AttachmentChange { volume: volume.id.clone(), cluster: cluster.id.clone(), live };
        let kind = RequestKind::AttachStorage(change);
        let request = start_request(tx, request_owner(&me, &volume.owner), kind, limit)?.id;
        let how = if live { "without a restart" } else { "its nodes restart" };
        let message =
            format!("Storage {} is being attached to cluster {} ({how}), request {request}.", volume.id, cluster.name);
        Ok(Accepted { cluster: cluster.id, volume: volume.id, instances: Vec::new(), request, message })
    });
    write.await
}

/// Begins to detach a volume from a cluster. A live detach is refused while processes use the volume; the refusal names
/// them.
pub async fn detach(
    control: &Control,
    caller: &Caller,
    volume: &str,
    cluster: &str,
    live: bool,
) -> Result<Accepted<ClusterId, VolumeId>> {
    let users = if live && control.driver().capabilities().live_mounts {
        current_users(control, caller, volume, cluster).await?
    } else {
        Vec::new()
    };
    let (me, volume, cluster) = (caller.clone(), volume.to_owned(), cluster.to_owned());
    let limit = control.settings().work_deadline.saturating_add(control.settings().detach_grace);
    let ours = control.clone();
    let write = control.write(caller, move |tx| {
        let now = tx.now();
        let volume = find_volume(tx, &me, &volume)?;
        let cluster = cluster_operations::find_cluster(tx, &me, &cluster)?;
        me.must_be_allowed(tx, Action::DetachVolume, &volume.owner, volume.id.as_str())?;
        me.must_be_allowed(tx, Action::DetachFromCluster, &cluster.owner, cluster.id.as_str())?;
        check_live_mounts(&ours, live)?;
        let held = attachments::of_cluster(tx, &cluster.id)?.filter(|held| held.volume == volume.id);
        let Some(held) = held else {
            return Err(Refused::NotAttached { volume: volume.id.to_string(), cluster: cluster.id.to_string() }.into());
        };
        let held = held.begin_detach(&cluster, live, now)?;
        if !users.is_empty() {
            return Err(Refused::StorageInUse { volume_users: volume_users::describe_volume_users(&users) }.into());
        }
        attachments::save(tx, &held)?;
        mark_restarting(tx, cluster.clone(), live, now)?;
        record_volume_event(tx, &volume, VolumeEvent::DetachBegun { cluster: cluster.id.clone(), live })?;
        let change = AttachmentChange { volume: volume.id.clone(), cluster: cluster.id.clone(), live };
        let kind = RequestKind::DetachStorage(change);
        let request = start_request(tx, request_owner(&me, &volume.owner), kind, limit)?.id;
        let how = match (live, cluster.has_failed()) {
            (true, _) => "without a restart",
            (false, true) => "the cluster has failed, so no node restarts",
            (false, false) => "its nodes restart",
        };
        let message = format!(
            "Storage {} is being detached from cluster {} ({how}), request {request}.",
            volume.id, cluster.name
        );
        Ok(Accepted { cluster: cluster.id, volume: volume.id, instances: Vec::new(), request, message })
    });
    write.await
}

/// Finds the processes that use the volume on the nodes of the cluster. The transaction that follows checks permissions
/// and state, so an error here is ignored.
async fn current_users(control: &Control, caller: &Caller, volume: &str, cluster: &str) -> Result<Vec<NodeVolumeUser>> {
    let read = control.store().read(|tx| -> Result<_> {
        let (volume, cluster) =
            (find_volume(tx, caller, volume)?, cluster_operations::find_cluster(tx, caller, cluster)?);
        Ok((volume.id, instances::of_cluster(tx, &cluster.id)?))
    });
    match read.await {
        Ok((volume, nodes)) => Ok(volume_users::find_volume_users(control, &volume, &nodes).await?),
        Err(_) => Ok(Vec::new()),
    }
}

/// Marks the nodes as restarting, unless the cluster has failed. The cluster is saved in any case, so that of two
/// racing calls one fails.
fn mark_restarting(tx: &mut Tx<'_>, cluster: Cluster, live: bool, now: Time) -> Result<()> {
    if live || cluster.has_failed() {
        return Ok(clusters::save(tx, &cluster)?);
    }
    let cluster = cluster.moved(now, State::restart)?;
    clusters::save(tx, &cluster)?;
    for mut instance in instances::of_cluster(tx, &cluster.id)? {
        instance.state = cluster.state.clone();
        instances::save(tx, &instance)?;
    }
    Ok(())
}

/// Refuses clusters that the driver or the operator's policy excludes.
fn check_eligibility(control: &Control, cluster: &Cluster, live: bool) -> Result<()> {
    if !control.driver().capabilities().volumes {
        let message = format!("the {} driver cannot attach volumes", control.driver().name());
        return Err(Error::invalid("cluster_not_eligible", message));
    }
    check_live_mounts(control, live)?;
    let has_gpus = control.catalogue().find(&cluster.instance_type).is_none_or(|kind| kind.shape.gpus > 0);
    match control.settings().eligibility {
        Eligibility::Any => Ok(()),
        Eligibility::Tensorpool if cluster.num_nodes > 1 || !has_gpus => Ok(()),
        Eligibility::Tensorpool => {
            let message = "on this engine, only clusters with several nodes or without GPUs can have storage";
            Err(Error::invalid("cluster_not_eligible", message))
        }
    }
}

fn check_live_mounts(control: &Control, live: bool) -> Result<()> {
    if live && !control.driver().capabilities().live_mounts {
        let message = format!(
            "the {} driver cannot mount or unmount volumes live; omit live, and the nodes restart",
            control.driver().name()
        );
        return Err(Error::invalid("live_unsupported", message));
    }
    Ok(())
}
