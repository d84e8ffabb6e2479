//! Recovery from a reboot of the host: clusters are restarted, a few at a time, and losses are recorded.
//!
//! A node that died alone is for its owner to judge. After a reboot of the host, users expect their clusters to come
//! back. The engine calls [`extend_deadlines`] and [`recover`] when it starts; the reconciler of instances continues
//! from there.

use tarn_driver::{End, Observed};
use tarn_model::Refused;
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::events::{Cause, ClusterEvent, Event, HostEvent, InstanceEvent, InstanceStop, RebootLosses};
use tarn_model::ids::RequestId;
use tarn_model::lifecycle::State;
use tarn_model::requests::RequestKind;
use tarn_store::{Tx, attachments, clusters, events, installation, instances, jobs, requests, storage};

use super::instances as instance_reconciler;
use crate::audit::{Difference, differences_of_existing};
use crate::requests::{deadlines, start_request};
use crate::{AfterReboot, Control, Error, Result, Settings};

/// The key under which the database stores the last handled boot of the host.
const LAST_BOOT_KEY: &str = "machine_boot";

/// The key under which the database stores what was open at the last boot of the host.
const OPEN_WORK_KEY: &str = "machine_boot_open";

/// How many requests get their time again in one transaction, which has a limit on a database server.
const EXTENDED_AT_ONCE: u32 = 100;

/// How many clusters are restarted at the same time; more would only wait for each other.
const RESTARTS_AT_ONCE: u32 = 4;

/// What was open when the host came up. It is kept until the losses are recorded, because more may begin or end until
/// then.
#[derive(serde::Serialize, serde::Deserialize)]
struct OpenWork {
    boot: String,
    requests: u64,
    jobs: u64,
}

/// Is called when the engine starts, before anything works: after a reboot of the host every open request gets its full
/// time again. This happens once for each boot; otherwise no deadline would ever pass on a host that cannot be
/// observed.
pub async fn extend_deadlines(control: &Control) -> Result<()> {
    let Some(boot) = unhandled_boot(control).await? else { return Ok(()) };
    let this = boot.clone();
    let read = control.store().read(move |tx| -> Result<Option<u64>> {
        if installation::get(tx, LAST_BOOT_KEY)?.is_none() || open_work_at_boot(tx, &this)?.is_some() {
            return Ok(None);
        }
        Ok(Some(jobs::count_interrupted(tx)?))
    });
    let Some(jobs) = read.await? else { return Ok(()) };
    let open = OpenWork { boot, requests: extend_all(control).await?, jobs };
    // Last: after a crash all of them get their time again.
    let text = serde_json::to_string(&open).map_err(Error::internal)?;
    control.store().write(move |tx| Ok(installation::set(tx, OPEN_WORK_KEY, &text)?)).await
}

/// Gives every open request its full time again, and returns how many there are.
async fn extend_all(control: &Control) -> Result<u64> {
    let (mut extended, mut after) = (0, None);
    loop {
        let page = control.store().read(|tx| requests::open(tx, after.as_ref(), EXTENDED_AT_ONCE)).await;
        let page = page.map_err(|error: tarn_store::Error| Error::from(error))?;
        let ids: Vec<_> = page.iter().map(|request| request.id.clone()).collect();
        let Some(last) = page.into_iter().next_back() else { return Ok(extended) };
        extended += ids.len() as u64;
        after = Some(last);
        let settings = control.settings().clone();
        control.store().write(move |tx| extend_each(tx, &ids, &settings)).await?;
    }
}

fn extend_each(tx: &mut Tx<'_>, ids: &[RequestId], settings: &Settings) -> Result<()> {
    for id in ids {
        if let Some(request) = requests::get(tx, id)?.filter(|request| request.ended.is_none()) {
            requests::save(tx, &deadlines::with_fresh_deadline(request, tx.now(), settings))?;
        }
    }
    Ok(())
}

/// Is called when the engine starts, after [`extend_deadlines`], and again until it succeeds: after a reboot of the
/// host it begins to restart the clusters that ran, and records the losses.
pub async fn recover(control: &Control) -> Result<()> {
    let Some(boot) = unhandled_boot(control).await? else { return Ok(()) };
    let this = boot.clone();
    let losses = match control.store().read(move |tx| open_work_at_boot(tx, &this)).await? {
        Some(open) => Some(count_losses(control, &open).await?),
        None => None,
    };
    let write = control.store().write(move |tx| -> Result<()> {
        installation::set(tx, LAST_BOOT_KEY, &boot)?;
        if let Some(losses) = &losses {
            let rebooted = HostEvent::Rebooted { losses: losses.clone() };
            tx.record(events::ENGINE, Event::Host("machine".to_owned(), rebooted))?;
        }
        Ok(())
    });
    write.await
}

/// Returns the current boot of the host, if its losses are not recorded yet.
async fn unhandled_boot(control: &Control) -> Result<Option<String>> {
    let boot = control.driver().host_boot().await.map_err(Error::internal)?;
    let seen = control.store().read(|tx| installation::get(tx, LAST_BOOT_KEY)).await.map_err(Error::from)?;
    Ok(boot.filter(|boot| seen.as_ref() != Some(boot)))
}

/// Returns what was open at this boot of the host, if that was stored.
fn open_work_at_boot(tx: &mut Tx<'_>, boot: &str) -> Result<Option<OpenWork>> {
    let kept = installation::get(tx, OPEN_WORK_KEY)?;
    let kept: Option<OpenWork> = kept.map(|text| serde_json::from_str(&text)).transpose().map_err(Error::internal)?;
    Ok(kept.filter(|open| open.boot == boot))
}

/// Marks what a reboot of the host has ended or lost, and counts it.
async fn count_losses(control: &Control, open: &OpenWork) -> Result<RebootLosses> {
    let observed = control.driver().observe().await.map_err(Error::internal)?;
    let before = control.store().read(clusters::count_failed).await.map_err(Error::from)?;
    let missing = count_missing(control, &observed).await?;
    let mut losses = RebootLosses { requests_resumed: open.requests, jobs_interrupted: open.jobs, ..missing };
    // Only the comparison, not the whole tick: if another part of it failed, the next try would count the losses again,
    // and wrongly.
    instance_reconciler::compare_with_host(control).await?;
    let read = control.store().read(|tx| Ok((clusters::count_failed(tx)?, requests::count_coming_back(tx)?)));
    let (failed, coming_back) = read.await.map_err(|error: tarn_store::Error| Error::from(error))?;
    losses.clusters_failed = failed.saturating_sub(before);
    losses.clusters_coming_back = coming_back;
    tracing::warn!(?losses, "the host was rebooted; the clusters that ran on it are being restarted");
    metrics::counter!("tarn_machine_reboots_total").increment(1);
    Ok(losses)
}

/// Counts what the host no longer has, and what it has without a row.
async fn count_missing(control: &Control, observed: &Observed) -> Result<RebootLosses> {
    let mut losses = RebootLosses::default();
    for difference in differences_of_existing(control.store(), observed).await? {
        tracing::debug!(%difference, "the host differs from the database");
        match difference {
            Difference::Instance(_, None) => losses.instances_missing += 1,
            Difference::Instance(_, Some(seen)) => {
                losses.disks_missing += u64::from(seen.end == Some(End::DiskMissing))
            }
            Difference::Volume(_, seen) => {
                losses.volumes_lost += u64::from(seen.is_none_or(|seen| seen.fault.is_some()));
            }
            Difference::UnknownInstance(_) | Difference::UnknownVolume(_) => losses.unknown += 1,
        }
    }
    Ok(losses)
}

/// Begins to restart a cluster whose nodes all ended with the host, in the transaction that marks them; returns whether
/// it was handled here. A cluster that cannot be restarted is marked as failed, with the reason.
pub(super) fn bring_cluster_back(
    tx: &mut Tx<'_>,
    cluster: &Cluster,
    nodes: &[Instance],
    settings: &Settings,
) -> Result<bool> {
    if settings.after_reboot == AfterReboot::Leave || cluster.state != State::Running {
        return Ok(false);
    }
    let (now, held) = (tx.now(), attachments::of_cluster(tx, &cluster.id)?);
    let volume = match &held {
        Some(held) => storage::get(tx, &held.volume)?,
        None => None,
    };
    match cluster.clone().begin_restart(nodes, held.as_ref(), volume.as_ref(), now) {
        Ok(restarting) => begin_bring_back(tx, restarting, nodes, settings)?,
        Err(refused) => fail_unrestartable(tx, cluster.clone(), nodes, &refused)?,
    }
    Ok(true)
}

/// Begins the restart of a cluster, which may have to wait for admission.
fn begin_bring_back(tx: &mut Tx<'_>, cluster: Cluster, nodes: &[Instance], settings: &Settings) -> Result<()> {
    clusters::save(tx, &cluster)?;
    for node in nodes {
        instances::save(tx, &Instance { state: cluster.state.clone(), ..node.clone() })?;
        record_end(tx, &cluster, node)?;
    }
    let begun = ClusterEvent::RestartBegun { name: cluster.name, cause: Some(Cause(End::MachineRebooted)) };
    tx.record(cluster.owner.scope(), Event::Cluster(cluster.id.clone(), begun))?;
    let kind = RequestKind::RestartCluster(cluster.id);
    let mut request = start_request(tx, cluster.owner, kind, settings.capacity_deadline)?;
    // An admission wakes the request, and its time starts then.
    request.due = request.deadline;
    requests::save(tx, &request)?;
    let note =
        format!("The host was rebooted (noticed at {}), and the engine restarts the clusters that ran", tx.now());
    requests::set_note(tx, &request, &note)?;
    admit_restarts(tx, settings)
}

fn fail_unrestartable(tx: &mut Tx<'_>, cluster: Cluster, nodes: &[Instance], refused: &Refused) -> Result<()> {
    let now = tx.now();
    for node in nodes {
        instances::save(tx, &node.clone().died(End::MachineRebooted)?)?;
        record_end(tx, &cluster, node)?;
    }
    let reason = format!(
        "the host was rebooted, and the cluster could not be brought back: {refused}. Restart it when that is fixed, \
         or destroy it"
    );
    let cluster = cluster.moved(now, |state| state.die(&reason))?;
    clusters::save(tx, &cluster)?;
    let failed = ClusterEvent::Failed { reason: Some(reason) };
    Ok(tx.record(cluster.owner.scope(), Event::Cluster(cluster.id, failed))?)
}

/// Records that a node has ended with the host.
fn record_end(tx: &mut Tx<'_>, cluster: &Cluster, node: &Instance) -> Result<()> {
    let stopped = InstanceEvent::stopped(node, InstanceStop::MachineRebooted);
    Ok(tx.record(cluster.owner.scope(), Event::Instance(node.id.clone(), stopped))?)
}

/// Admits as many restarts as may run at the same time.
pub(super) async fn admit_waiting_restarts(control: &Control) -> Result<()> {
    let waiting = control.store().read(requests::is_any_to_bring_back).await.map_err(Error::from)?;
    if waiting {
        let settings = control.settings().clone();
        control.store().write(move |tx| admit_restarts(tx, &settings)).await?;
        control.memory.due.notify_one();
    }
    Ok(())
}

fn admit_restarts(tx: &mut Tx<'_>, settings: &Settings) -> Result<()> {
    let deadline = tx.now().after(settings.work_deadline);
    Ok(requests::bring_back(tx, RESTARTS_AT_ONCE, deadline)?)
}
