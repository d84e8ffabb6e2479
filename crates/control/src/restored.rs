//! A database that was restored from a backup, before the first engine opens it.
//!
//! It is a new installation: on its host nothing runs of what the backup describes. So everything that ran, waited or
//! was in progress is ended here, with the reason, in one transaction. The ledger and the events stay. Start reading at
//! [`end_former_work`].

use std::collections::BTreeSet;

use tarn_driver::Observed;
use tarn_model::clusters::Cluster;
use tarn_model::events::{ClusterEvent, Event, HostEvent, InstanceEvent, InstanceStop, RestoreLosses, VolumeEvent};
use tarn_model::ids::VolumeId;
use tarn_model::lifecycle::State;
use tarn_model::requests::Request;
use tarn_model::storage::{Volume, VolumeState};
use tarn_store::{
    Store, Tx, attachments, backup, clusters, events, examine, installation, instances, jobs, requests, storage,
};

use crate::audit::{Difference, differences};
use crate::jobs::queue::cluster_destruction::end_job_by_force;
use crate::jobs::queue::ended_metrics::EndedMetrics;
use crate::requests::{end_request, fail_object};
use crate::{Error, Result};

/// The facts about an installation that are true on every host. The others name the former host or its directories.
const KEPT_FACTS: [&str; 2] = ["secret_key", "permissive_defaults"];

/// The key under which the database says that it was restored, and from what.
const RESTORED_KEY: &str = "restored";

/// How many rows are read at a time.
const PAGE_SIZE: u32 = 200;

/// Ends everything that ran on the former host. `why` is the reason that owners see; `present` are the volumes whose
/// data is on the new host; `mark` is the new mark of the directory of objects, under its key.
pub async fn end_former_work(
    store: &Store,
    why: &str,
    present: &BTreeSet<VolumeId>,
    mark: (&'static str, &str),
) -> Result<RestoreLosses> {
    let (why, present, mark) = (why.to_owned(), present.clone(), (mark.0, mark.1.to_owned()));
    let write = store.write(move |tx| -> Result<RestoreLosses> {
        backup::lift_limit(tx)?;
        let (requests, jobs) = (fail_requests(tx, &why)?, end_jobs(tx, &why)?);
        let mut ended = RestoreLosses { requests, jobs, ..RestoreLosses::default() };
        leave_clusters_behind(tx, &why, &mut ended)?;
        mark_missing_volumes(tx, &present, &why, &mut ended)?;
        backup::forget_host(tx)?;
        installation::retain(tx, &KEPT_FACTS)?;
        installation::set(tx, mark.0, &mark.1)?;
        let now = tx.now();
        installation::set(tx, RESTORED_KEY, &format!("{now}: {why}"))?;
        let restored = HostEvent::Restored { losses: ended.clone() };
        tx.record(events::ENGINE, Event::Host("machine".to_owned(), restored))?;
        Ok(ended)
    });
    write.await
}

/// Ends the open requests. What they worked on is marked as after an abandoned undo.
fn fail_requests(tx: &mut Tx<'_>, why: &str) -> Result<u64> {
    let (mut count, mut after) = (0, None);
    loop {
        let open = requests::open(tx, after.as_ref(), PAGE_SIZE)?;
        let Some(last) = open.last().cloned() else { return Ok(count) };
        count += open.len() as u64;
        after = Some(last);
        open.into_iter().try_for_each(|request| fail_request(tx, request, why))?;
    }
}

fn fail_request(tx: &mut Tx<'_>, request: Request, why: &str) -> Result<()> {
    let mut request = requests::fence(tx, request)?;
    fail_object(tx, &request.kind, false, why)?;
    request.progress = match request.progress.clone().undo(why.to_owned()) {
        Ok(undoing) => undoing.fail()?,
        // It was being undone, for a reason of its own.
        Err(_) => request.progress.fail()?,
    };
    request.message = Some(format!("{why}."));
    end_request(tx, request)
}

fn end_jobs(tx: &mut Tx<'_>, why: &str) -> Result<u64> {
    let open = jobs::open(tx)?;
    let (count, metrics) = (open.len() as u64, EndedMetrics::default());
    for job in open {
        let job = end_job_by_force(tx, job, why.to_owned())?;
        metrics.record_end(tx, &job)?;
    }
    Ok(count)
}

/// Ends every cluster that is not destroyed.
fn leave_clusters_behind(tx: &mut Tx<'_>, why: &str, ended: &mut RestoreLosses) -> Result<()> {
    let mut after = None;
    loop {
        let live = clusters::live(tx, after.as_ref(), PAGE_SIZE)?;
        let Some(last) = live.last() else { return Ok(()) };
        after = Some(last.id.clone());
        for cluster in live {
            ended.clusters.push(format!("{} ({})", cluster.id, cluster.name));
            leave_cluster_behind(tx, cluster, why)?;
        }
    }
}

fn leave_cluster_behind(tx: &mut Tx<'_>, cluster: Cluster, why: &str) -> Result<()> {
    let (now, scope) = (tx.now(), cluster.owner.scope().to_owned());
    for node in instances::of_cluster(tx, &cluster.id)? {
        if node.holds_capacity {
            let stopped = InstanceEvent::stopped(&node, InstanceStop::Restore);
            tx.record(&scope, Event::Instance(node.id.clone(), stopped))?;
        }
        if node.state != State::Destroyed {
            instances::save(tx, &node.left_behind(why)?)?;
        }
    }
    if let Some(held) = attachments::of_cluster(tx, &cluster.id)? {
        attachments::remove(tx, &cluster.id, &held.volume)?;
    }
    let reason = format!("{why}. Destroy it, and create another one");
    let cluster = cluster.moved(now, |state| state.leave_behind(&reason))?;
    clusters::save(tx, &cluster)?;
    Ok(tx.record(&scope, Event::Cluster(cluster.id, ClusterEvent::Failed { reason: Some(reason) }))?)
}

/// Marks volumes as missing whose data is not on the new host. Volumes are READY again when it is found.
fn mark_missing_volumes(
    tx: &mut Tx<'_>,
    present: &BTreeSet<VolumeId>,
    why: &str,
    ended: &mut RestoreLosses,
) -> Result<()> {
    let mut after = None;
    loop {
        let page = storage::remaining(tx, after.as_ref(), PAGE_SIZE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id.clone());
        for volume in page {
            if present.contains(&volume.id) {
                ended.volumes += 1;
            } else {
                ended.volumes_missing.push(format!("{} ({})", volume.id, volume.name));
                mark_missing(tx, volume, why)?;
            }
        }
    }
}

fn mark_missing(tx: &mut Tx<'_>, volume: Volume, why: &str) -> Result<()> {
    if volume.state != VolumeState::Ready {
        return Ok(());
    }
    let (now, reason) = (tx.now(), format!("{why}, and its data was not there"));
    let scope = volume.owner.scope().to_owned();
    let volume = volume.moved(now, |state| state.spoil(&reason))?;
    storage::save(tx, &volume)?;
    let failed = VolumeEvent::Failed { state: None, reason: Some(reason) };
    Ok(tx.record(&scope, Event::Volume(volume.id, failed))?)
}

/// Examines a restored database before its first engine. Returns what is wrong; nothing should be.
pub async fn audit_restored(store: &Store, present: &BTreeSet<VolumeId>) -> Result<Vec<String>> {
    let mut wrong = examine::health(store).await.map_err(Error::from)?.faults.unwrap_or_default();
    let counts = store.read(|tx| -> Result<[(u64, &str); 4]> {
        backup::lift_limit(tx)?;
        Ok([
            (requests::count_open(tx)?, "requests are in progress"),
            (jobs::open(tx)?.len() as u64, "jobs have not ended"),
            (backup::holding_instances(tx)?, "instances hold capacity"),
            (backup::unbalanced_transfers(tx)?, "transactions of the ledger do not sum to zero"),
        ])
    });
    let counts = counts.await?;
    wrong.extend(counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    // Nothing exists on the new host but its volumes, whose sizes only the driver can tell.
    for difference in differences(store, &Observed::default()).await? {
        match &difference {
            Difference::Volume(volume, _) if present.contains(&volume.id) => {}
            Difference::Instance(..) | Difference::Volume(..) => wrong.push(difference.to_string()),
            Difference::UnknownInstance(_) | Difference::UnknownVolume(_) => wrong.push(difference.to_string()),
        }
    }
    Ok(wrong)
}
