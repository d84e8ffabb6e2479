//! What a restart of the machine ended at once: its clusters are brought back, a few at a time, and what was lost is told.
//!
//! A node that died alone is for its owner to judge. A machine that went down is nobody's fault, and whoever had a cluster expects
//! to find it again. [`extend_deadlines`] and [`recover`] are called when the engine starts; the reconciler of the machines goes on from there.

use tarn_driver::{End, Observed};
use tarn_model::Refused;
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::lifecycle::State;
use tarn_model::requests::RequestType;
use tarn_store::{Tx, attachments, clusters, events, installation, instances, jobs, requests, storage};

use super::instances as instance_reconciler;
use crate::audit::{Difference, differences};
use crate::requests::{NewRequest, deadlines, start_request};
use crate::{AfterReboot, Control, Error, Result, Settings};

/// The key under which the database keeps which start of the machine it has seen last.
const LAST_BOOT_KEY: &str = "machine_boot";

/// The key under which it keeps what was open when the machine came up last.
const OPEN_WORK_KEY: &str = "machine_boot_open";

/// So many clusters are brought back at the same time: all at once would only wait for each other.
const RESTARTS_AT_ONCE: u32 = 4;

/// What a restart of the machine has ended or taken.
#[derive(Debug, Default, serde::Serialize)]
struct Losses {
    /// Clusters that begin to come back; that they did, or did not, is told by events of their own.
    clusters_coming_back: u64,
    /// Clusters that failed, because they cannot be brought back or shall not.
    clusters_failed: u64,
    /// Requests that go on where they were.
    requests_resumed: u64,
    /// Jobs that ran and were cut off.
    jobs_interrupted: u64,
    /// Volumes that are damaged or not where they were.
    volumes_lost: u64,
    /// Nodes whose disk is gone.
    disks_missing: u64,
    /// Nodes that the database knows and the machine does not.
    instances_missing: u64,
    /// Instances and volumes that the machine has and the database does not know.
    unknown: u64,
}

/// What was open when the machine came up. It is kept until the losses were told: by then more may have begun, or have ended.
#[derive(serde::Serialize, serde::Deserialize)]
struct OpenWork {
    boot: String,
    requests: u64,
    jobs: u64,
}

/// To be called when the engine starts, before anything works: after a restart of the machine whatever is open has its time anew.
/// That happens once for each restart, or nothing would ever come to its deadline on a machine that cannot be looked at.
pub async fn extend_deadlines(control: &Control) -> Result<()> {
    let Some(boot) = unhandled_boot(control).await? else { return Ok(()) };
    let settings = control.settings().clone();
    let write = control.store().write(move |tx| -> Result<()> {
        if installation::get(tx, LAST_BOOT_KEY)?.is_none() || open_work_at_boot(tx, &boot)?.is_some() {
            return Ok(());
        }
        let all = requests::open(tx)?;
        let open = OpenWork { boot: boot.clone(), requests: all.len() as u64, jobs: jobs::count_interrupted(tx)? };
        for request in all {
            requests::save(tx, &deadlines::with_fresh_deadline(request, tx.now(), &settings))?;
        }
        Ok(installation::set(tx, OPEN_WORK_KEY, &serde_json::to_string(&open).map_err(Error::internal)?)?)
    });
    write.await
}

/// To be called when the engine starts, after [`extend_deadlines`], and again until it succeeds: after a restart of the machine it begins
/// to bring back what ran, and tells what was lost.
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
            let detail = serde_json::to_value(losses).map_err(Error::internal)?;
            events::record(tx, events::ENGINE, events::ENGINE, "machine", "machine.rebooted", &detail)?;
        }
        Ok(())
    });
    write.await
}

/// The present start of the machine, if what it has done is not told yet.
async fn unhandled_boot(control: &Control) -> Result<Option<String>> {
    let boot = control.driver().machine_boot().await.map_err(Error::internal)?;
    let seen = control.store().read(|tx| installation::get(tx, LAST_BOOT_KEY)).await.map_err(Error::from)?;
    Ok(boot.filter(|boot| seen.as_ref() != Some(boot)))
}

/// What was open when the machine came up this time, if that was written down.
fn open_work_at_boot(tx: &mut Tx<'_>, boot: &str) -> Result<Option<OpenWork>> {
    let kept = installation::get(tx, OPEN_WORK_KEY)?;
    let kept: Option<OpenWork> = kept.map(|text| serde_json::from_str(&text)).transpose().map_err(Error::internal)?;
    Ok(kept.filter(|open| open.boot == boot))
}

/// Marks what a restart of the machine has done to everything, and counts it.
async fn count_losses(control: &Control, open: &OpenWork) -> Result<Losses> {
    let observed = control.driver().observe().await.map_err(Error::internal)?;
    let before = control.store().read(clusters::count_failed).await.map_err(Error::from)?;
    let missing = count_missing(control, &observed).await?;
    let mut losses = Losses { requests_resumed: open.requests, jobs_interrupted: open.jobs, ..missing };
    // Without what else is kept: should that fail, what was found would be counted anew by the next try, and wrongly.
    instance_reconciler::compare_with_host(control).await?;
    let read = control.store().read(|tx| Ok((clusters::count_failed(tx)?, requests::count_coming_back(tx)?)));
    let (failed, coming_back) = read.await.map_err(|error: tarn_store::Error| Error::from(error))?;
    losses.clusters_failed = failed.saturating_sub(before);
    losses.clusters_coming_back = coming_back;
    tracing::warn!(?losses, "the host was rebooted; the clusters that ran on it are being restarted");
    metrics::counter!("tarn_machine_reboots_total").increment(1);
    Ok(losses)
}

/// What the machine does not have any more, or has and nobody knows.
async fn count_missing(control: &Control, observed: &Observed) -> Result<Losses> {
    let mut losses = Losses::default();
    for difference in differences(control.store(), observed).await? {
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

/// Whether a cluster that ran comes back by itself, in the transaction that has seen all of its nodes ended by the machine. One that
/// cannot be brought back has failed, and says why.
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
        Err(refused) => fail_cluster(tx, cluster.clone(), nodes, &refused)?,
    }
    Ok(true)
}

/// Begins to bring a cluster back, or lets it wait for its turn.
fn begin_bring_back(tx: &mut Tx<'_>, cluster: Cluster, nodes: &[Instance], settings: &Settings) -> Result<()> {
    clusters::save(tx, &cluster)?;
    for node in nodes {
        instances::save(tx, &Instance { state: cluster.state.clone(), ..node.clone() })?;
    }
    let detail = serde_json::json!({ "name": cluster.name, "cause": End::MachineRebooted.name() });
    events::record(tx, events::ENGINE, cluster.owner.scope(), cluster.id.as_str(), "cluster.restart", &detail)?;
    let owner = cluster.owner.clone();
    let new = NewRequest { kind: RequestType::ClusterRestart, owner, cluster: Some(&cluster.id), volume: None };
    let mut request = start_request(tx, new, settings.capacity_deadline)?;
    // It has its turn when it is woken, and all of its time from then on.
    request.due = request.deadline;
    requests::save(tx, &request)?;
    let note =
        format!("The host was rebooted (noticed at {}), and the engine restarts the clusters that ran", tx.now());
    requests::set_note(tx, &request, &note)?;
    admit_restarts(tx, settings)
}

fn fail_cluster(tx: &mut Tx<'_>, cluster: Cluster, nodes: &[Instance], refused: &Refused) -> Result<()> {
    let now = tx.now();
    for node in nodes {
        instances::save(tx, &node.clone().died(End::MachineRebooted)?)?;
    }
    let reason = format!(
        "the host was rebooted, and the cluster could not be brought back: {refused}. Restart it when that is fixed, or \
         destroy it"
    );
    let cluster = cluster.moved(now, |state| state.die(&reason))?;
    clusters::save(tx, &cluster)?;
    let detail = serde_json::json!({ "reason": reason });
    Ok(events::record(tx, events::ENGINE, cluster.owner.scope(), cluster.id.as_str(), "cluster.failed", &detail)?)
}

/// Lets as many clusters come back as may at the same time.
pub(super) async fn admit_waiting_restarts(control: &Control) -> Result<()> {
    let waiting = control.store().read(requests::is_any_to_bring_back).await.map_err(Error::from)?;
    if waiting {
        let settings = control.settings().clone();
        control.store().write(move |tx| admit_restarts(tx, &settings)).await?;
        control.due().notify_one();
    }
    Ok(())
}

fn admit_restarts(tx: &mut Tx<'_>, settings: &Settings) -> Result<()> {
    let deadline = tx.now().after(settings.work_deadline);
    Ok(requests::bring_back(tx, RESTARTS_AT_ONCE, deadline)?)
}
