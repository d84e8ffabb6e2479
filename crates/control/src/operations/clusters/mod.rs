//! What callers do with clusters.
//!
//! Start reading at [`create()`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::Money;
use tarn_model::access::Action;
use tarn_model::capacity::{self, Claim};
use tarn_model::catalogue::{Catalogue, InstanceType};
use tarn_model::clusters::{Cluster, Instance, MAX_NODES};
use tarn_model::events::{ClusterEvent, Event};
use tarn_model::gpus::{GpuRecord, Health};
use tarn_model::ids::{ClusterId, RequestId};
use tarn_model::lifecycle::State;
use tarn_model::line::Examined;
use tarn_model::names;
use tarn_model::requests::{RequestKind, RequestStatus, RequestType};
use tarn_model::storage::Attachment;
use tarn_model::users::Owner;
use tarn_store::{Tx, attachments, clusters, instances, requests, storage};

mod create;
mod withdraw;

use super::requests::RequestView;
use super::{Accepted, request_owner, whose};
use crate::explain::Explainer;
use crate::jobs::queue::cluster_destruction;
use crate::jobs::queue::ended_metrics::EndedMetrics;
use crate::page::{self, cut, decode_cursor};
use crate::requests::{line, start_completed, start_request};
use crate::{Caller, Control, Error, Listing, Page, Result};
use withdraw::{leave_queue, withdraw_open_work};

pub use create::{NewCluster, create};

/// The changes to a cluster; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterEdit {
    pub name: Option<String>,
    /// Refuses to destroy the cluster.
    pub deletion_protection: Option<bool>,
}

/// A cluster with everything that is shown of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    pub cluster: Cluster,
    pub instances: Vec<Instance>,
    /// The attached volume.
    pub attachment: Option<Attachment>,
    /// What it waits for, or why it failed.
    pub explanation: Option<String>,
    /// Whether its GPUs are simulated.
    pub simulated: bool,
    /// What is known about the GPUs of its nodes.
    pub gpus: BTreeMap<String, GpuRecord>,
}

/// The maximum number of requests that are listed for a cluster.
const MAX_OPERATIONS: u32 = 1000;

/// Lists the clusters of the caller, or of the caller's organization.
pub async fn list(control: &Control, caller: &Caller, listing: Listing) -> Result<Page<ClusterView>> {
    let after = decode_cursor(listing.cursor.as_deref(), ClusterId::PREFIX)?;
    let limit = page::limit(listing.limit)?;
    let read = control.store().read(|tx| -> Result<Page<ClusterView>> {
        let asked = tarn_store::Listing {
            owner: whose(caller, listing.include_org),
            all: listing.all,
            after: after.as_ref().map(|(time, id)| (*time, id.as_str())),
            limit: limit + 1,
        };
        let found = clusters::list(tx, &asked)?;
        let mut nodes = instances::of_clusters(tx, &found)?;
        let ids: Vec<&str> = found.iter().map(|cluster| cluster.id.as_str()).collect();
        let held = attachments::of_clusters(tx, &ids)?;
        let page = cut(found, limit, |cluster| (cluster.created, cluster.id.to_string()));
        let (mut items, mut explainer) = (Vec::with_capacity(page.items.len()), Explainer::new(control));
        for cluster in page.items {
            let instances = nodes.remove(&cluster.id).unwrap_or_default();
            let attachment = held.iter().find(|held| held.cluster == cluster.id).cloned();
            items.push(cluster_view(control, &mut explainer, tx, cluster, instances, attachment)?);
        }
        Ok(Page { items, next_cursor: page.next_cursor })
    });
    read.await
}

/// Returns one cluster, by id or name.
pub async fn info(control: &Control, caller: &Caller, cluster: &str) -> Result<ClusterView> {
    let read = control.store().read(|tx| -> Result<ClusterView> {
        let cluster = find_cluster(tx, caller, cluster)?;
        let nodes = instances::of_cluster(tx, &cluster.id)?;
        let held = attachments::of_cluster(tx, &cluster.id)?;
        cluster_view(control, &mut Explainer::new(control), tx, cluster, nodes, held)
    });
    read.await
}

/// Changes the name or the deletion protection immediately.
pub async fn edit(control: &Control, caller: &Caller, cluster: &str, edit: ClusterEdit) -> Result<Accepted> {
    if edit == ClusterEdit::default() {
        let message = "nothing to change: set cluster_name or deletion_protection";
        return Err(Error::invalid("nothing_to_change", message));
    }
    if let Some(name) = &edit.name {
        names::check_new(name)?;
    }
    let (me, asked) = (caller.clone(), cluster.to_owned());
    let write = control.write(caller, move |tx| {
        let mut cluster = find_cluster(tx, &me, &asked)?;
        if matches!(cluster.state, State::Destroying | State::Destroyed) {
            return Err(tarn_model::Refused::ClusterGone.into());
        }
        if cluster.deletion_protection && edit.deletion_protection == Some(false) {
            me.must_be_allowed(tx, Action::UnprotectCluster, &cluster.owner, &asked)?;
        }
        let before = cluster.clone();
        if let Some(name) = &edit.name {
            cluster.name.clone_from(name);
        }
        cluster.deletion_protection = edit.deletion_protection.unwrap_or(cluster.deletion_protection);
        let protection = if cluster.deletion_protection { "on" } else { "off" };
        let message = match &edit.name {
            Some(name) => {
                format!("Cluster {} is now named {name}, and its deletion protection is {protection}.", cluster.id)
            }
            None => format!("Cluster {}: deletion protection is now {protection}.", cluster.name),
        };
        if cluster == before {
            // The last edit has made the cluster what this call asks for.
            let request = match requests::last_completed_of_cluster(tx, &cluster.id, RequestType::ClusterEdit)? {
                Some(last) => last,
                None => {
                    let kind = RequestKind::EditCluster(cluster.id.clone());
                    start_completed(tx, request_owner(&me, &cluster.owner), kind, &message)?
                }
            };
            return Ok(Accepted { cluster: cluster.id, volume: (), instances: Vec::new(), request, message });
        }
        clusters::save(tx, &cluster)?;
        let (name, deletion_protection) = (cluster.name.clone(), cluster.deletion_protection);
        let edited = ClusterEvent::Edited { name, deletion_protection };
        tx.record(cluster.owner.scope(), Event::Cluster(cluster.id.clone(), edited))?;
        let (owner, kind) = (request_owner(&me, &cluster.owner), RequestKind::EditCluster(cluster.id.clone()));
        let request = start_completed(tx, owner, kind, &message)?;
        Ok(Accepted { cluster: cluster.id, volume: (), instances: Vec::new(), request, message })
    });
    write.await
}

/// Begins to destroy a cluster. A cluster that waits for capacity leaves the queue.
pub async fn destroy(control: &Control, caller: &Caller, cluster: &str) -> Result<Accepted> {
    let (me, asked, limit) = (caller.clone(), cluster.to_owned(), control.settings().work_deadline);
    let ends = EndedMetrics::default();
    let recorded = ends.clone();
    let write = control.write(caller, move |tx| {
        recorded.reset();
        let cluster = find_cluster(tx, &me, &asked)?;
        me.must_be_allowed(tx, Action::DestroyCluster, &cluster.owner, &asked)?;
        let cluster = withdraw_open_work(tx, cluster)?;
        let (now, held) = (tx.now(), attachments::of_cluster(tx, &cluster.id)?);
        let (was, owner) = (cluster.state.clone(), request_owner(&me, &cluster.owner));
        let cluster = cluster.begin_destroy(held.as_ref(), now)?;
        let (id, name) = (cluster.id.clone(), cluster.name.clone());
        let request = release(tx, cluster, &was, owner, limit, &recorded)?;
        let message = format!("Cluster {name} ({id}) is being destroyed, request {request}.");
        Ok(Accepted { cluster: id, volume: (), instances: Vec::new(), request, message })
    });
    let accepted = write.await?;
    ends.count_ended();
    // Its jobs have to end, and clients that follow their logs must be informed.
    control.memory.jobs_changed.notify_one();
    control.memory.live_logs.notify_all_logs();
    Ok(accepted)
}

/// Records that the destruction of a cluster has begun, which was in this state, starts the request that does it, which
/// belongs to `owner`, and stops its jobs.
pub(crate) fn release(
    tx: &mut Tx<'_>,
    cluster: Cluster,
    was: &State,
    owner: Owner,
    limit: Duration,
    ends: &EndedMetrics,
) -> Result<RequestId> {
    if *was == State::Pending {
        leave_queue(tx, &cluster)?;
    }
    clusters::save(tx, &cluster)?;
    for mut instance in instances::of_cluster(tx, &cluster.id)? {
        instance.state = cluster.state.clone();
        instances::save(tx, &instance)?;
    }
    cluster_destruction::stop_jobs_of_cluster(tx, &cluster, ends)?;
    let begun = ClusterEvent::DestroyBegun { name: cluster.name };
    tx.record(cluster.owner.scope(), Event::Cluster(cluster.id.clone(), begun))?;
    Ok(start_request(tx, owner, RequestKind::ReleaseCluster(cluster.id), limit)?.id)
}

/// Begins to restart all nodes of a cluster. A cluster with dead nodes runs again afterwards.
pub async fn restart(control: &Control, caller: &Caller, cluster: &str) -> Result<Accepted> {
    let (me, asked, limit) = (caller.clone(), cluster.to_owned(), control.settings().work_deadline);
    let write = control.write(caller, move |tx| {
        let cluster = find_cluster(tx, &me, &asked)?;
        me.must_be_allowed(tx, Action::RestartCluster, &cluster.owner, &asked)?;
        let (now, held) = (tx.now(), attachments::of_cluster(tx, &cluster.id)?);
        let nodes = instances::of_cluster(tx, &cluster.id)?;
        let volume = match &held {
            Some(held) => storage::get(tx, &held.volume)?,
            None => None,
        };
        let cluster = cluster.begin_restart(&nodes, held.as_ref(), volume.as_ref(), now)?;
        clusters::save(tx, &cluster)?;
        for mut instance in nodes {
            instance.state = cluster.state.clone();
            instances::save(tx, &instance)?;
        }
        let begun = ClusterEvent::RestartBegun { name: cluster.name.clone(), cause: None };
        tx.record(cluster.owner.scope(), Event::Cluster(cluster.id.clone(), begun))?;
        let (owner, kind) = (request_owner(&me, &cluster.owner), RequestKind::RestartCluster(cluster.id.clone()));
        let request = start_request(tx, owner, kind, limit)?.id;
        let message = format!("Cluster {} ({}) is being restarted, request {request}.", cluster.name, cluster.id);
        Ok(Accepted { cluster: cluster.id, volume: (), instances: Vec::new(), request, message })
    });
    write.await
}

/// Lists all requests of a cluster, newest first.
pub async fn operations(
    control: &Control,
    caller: &Caller,
    cluster: &str,
    kind: Option<RequestType>,
    status: Option<RequestStatus>,
) -> Result<Vec<RequestView>> {
    let read = control.store().read(|tx| -> Result<Vec<RequestView>> {
        let cluster = find_cluster(tx, caller, cluster)?;
        let (kind, status) = (kind.map_or("", RequestType::name), status.map_or("", RequestStatus::name));
        let found = requests::of_cluster(tx, &cluster.id, kind, status, MAX_OPERATIONS)?;
        let mut explainer = Explainer::new(control);
        found.into_iter().map(|request| RequestView::explained(&mut explainer, tx, request)).collect()
    });
    read.await
}

/// Returns the hourly price of a number of nodes.
pub fn quote(control: &Control, instance_type: &str, num_nodes: Option<u32>) -> Result<Money> {
    let (kind, nodes) = fitting_type(control, instance_type, num_nodes)?;
    Ok(kind.hourly.times(nodes.into()))
}

/// Returns all instance types.
pub fn catalogue(control: &Control) -> Arc<Catalogue> {
    control.catalogue()
}

/// Returns all instance types, and how many instances of each a new claim would get at once.
pub async fn types(control: &Control) -> Result<Vec<(InstanceType, u64)>> {
    let (present, catalogue) = (control.host_view().present_inventory(), control.catalogue());
    let count = |examined: Examined<'_>| {
        let counted = |kind: &InstanceType| (kind.clone(), examined.count_room(&kind.shape));
        catalogue.types().iter().map(counted).collect()
    };
    control.store().read(|tx| line::look(tx, &present, count)).await
}

/// Returns the instance type and the number of nodes, if the host could ever hold them.
pub(super) fn fitting_type(control: &Control, name: &str, num_nodes: Option<u32>) -> Result<(InstanceType, u32)> {
    let catalogue = control.catalogue();
    let Some(kind) = catalogue.find(name) else {
        let known: Vec<_> = catalogue.types().iter().map(|kind| kind.name.as_str()).collect();
        let meant = known.iter().find(|known| known.eq_ignore_ascii_case(name));
        let meant = meant.map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
        let (shown, known) = (tarn_base::plain(name, 64), known.join(", "));
        let message = format!("unknown instance type '{shown}'; {meant}available types: {known}");
        return Err(Error::invalid("unknown_instance_type", message));
    };
    let nodes = num_nodes.unwrap_or(1);
    if !(1..=MAX_NODES).contains(&nodes) {
        return Err(Error::invalid("invalid_num_nodes", format!("a cluster has 1 to {MAX_NODES} nodes")));
    }
    match capacity::fits_ever(&control.inventory(), &Claim { shape: kind.shape.clone(), nodes }) {
        Ok(()) => Ok((kind.clone(), nodes)),
        Err(shortage) => {
            let message =
                format!("{nodes} x {} can never fit on this host: it needs {shortage} when nothing runs", kind.name);
            Err(Error::invalid("does_not_fit", message))
        }
    }
}

/// Finds a cluster by id or name. A name is looked up in the caller's scope only, so the names of other tenants are
/// unknown.
pub(super) fn find_cluster(tx: &mut Tx<'_>, caller: &Caller, asked: &str) -> Result<Cluster> {
    let found = match asked.parse::<ClusterId>() {
        Ok(id) => clusters::get(tx, &id)?,
        Err(_) if names::check(asked).is_ok() => clusters::find(tx, caller.user.owner().scope(), asked)?,
        Err(_) => None,
    };
    let cluster = found.ok_or_else(|| Error::not_found("cluster", asked))?;
    caller.must_own(&cluster.owner, "cluster", asked)?;
    Ok(cluster)
}

/// Returns whether the GPUs of a node are simulated. With the fake driver they always are.
fn is_simulated(control: &Control, node: &Instance) -> bool {
    let Some(model) = &node.shape.gpu_model else { return false };
    let inventory = control.inventory();
    let mut same = inventory.gpus.iter().filter(|gpu| gpu.model == *model).peekable();
    control.driver().name() == "fake" || (same.peek().is_some() && same.all(|gpu| gpu.simulated))
}

fn cluster_view(
    control: &Control,
    explainer: &mut Explainer<'_>,
    tx: &mut Tx<'_>,
    cluster: Cluster,
    instances: Vec<Instance>,
    attachment: Option<Attachment>,
) -> Result<ClusterView> {
    let gpus = explainer.known_gpus(tx, &instances)?;
    let explanation = match &cluster.state {
        State::Running => describe_unwell_gpus(&instances, &gpus),
        State::Destroyed => None,
        State::Failed { reason } => Some(format!("Failed at {}: {reason}", cluster.since)),
        State::Pending | State::Provisioning | State::Configuring | State::Restarting | State::Destroying => {
            let open = requests::open_of_cluster(tx, &cluster.id)?;
            explainer.explain_object(tx, &open, cluster.since)?
        }
    };
    let simulated = instances.first().is_some_and(|node| is_simulated(control, node));
    Ok(ClusterView { cluster, instances, attachment, explanation, simulated, gpus })
}

/// Describes the unhealthy GPUs of running nodes, and what the user can do. Drains are not mentioned, because the
/// cluster keeps a drained GPU.
fn describe_unwell_gpus(nodes: &[Instance], gpus: &BTreeMap<String, GpuRecord>) -> Option<String> {
    let of = |node: &Instance, id: &String| match &gpus.get(id)?.health {
        Health::Bad { reason, since } | Health::Fatal { reason, since } => {
            Some(format!("GPU {id} of {} has been unhealthy since {since}: {reason}.", node.name()))
        }
        Health::Good | Health::Recovering { .. } => None,
    };
    let sentences: Vec<String> = nodes.iter().flat_map(|node| node.gpus.iter().filter_map(|id| of(node, id))).collect();
    let advice = "The cluster keeps running. Save your work; a new cluster gets other GPUs.";
    (!sentences.is_empty()).then(|| format!("{} {advice}", sentences.join(" ")))
}
