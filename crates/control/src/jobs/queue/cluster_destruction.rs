//! The jobs of a cluster that is being destroyed: none of them outlives it.

use std::time::Duration;

use tarn_model::clusters::Cluster;
use tarn_model::ids::{ClusterId, JobId};
use tarn_model::jobs::{Job, Outcome, State, Teardown};
use tarn_store::{Tx, jobs};

use super::ends::Ends;
use super::notes;
use crate::{Control, Error, Result};

/// How long jobs have after their grace to end in order, with their outputs collected, before they are ended by force.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(25);

/// Begins to end all jobs of a cluster, in the transaction that begins its destruction. What has no process ends at once.
pub(crate) fn stop_all(tx: &mut Tx<'_>, cluster: &Cluster, ends: &Ends) -> Result<()> {
    let now = tx.now();
    for job in jobs::open_of_cluster(tx, &cluster.id)? {
        let outcome = Outcome::Failed { reason: reason(cluster) };
        let mut job = job.stop(now, outcome)?;
        // What it wanted is happening.
        if job.teardown == Teardown::Wanted {
            job.teardown = Teardown::Over;
        }
        jobs::save(tx, &job)?;
        ends.record(tx, &job)?;
    }
    Ok(())
}

/// Waits until no job of a cluster is open any more, but not for ever; says whether that is so.
pub(crate) async fn wait(control: &Control, cluster: &ClusterId) -> Result<bool> {
    let settings = control.settings();
    let patience = settings.jobs.stop_grace.saturating_add(PATIENCE).min(settings.step_timeout / 2);
    let all_ended = async {
        loop {
            if !control.store().read(|tx| jobs::is_any_open(tx, cluster)).await.map_err(Error::from)? {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(patience, all_ended).await {
        Ok(ended) => ended.map(|()| true),
        Err(_) => Ok(false),
    }
}

/// Ends what is still open. Whoever drives it loses it; what was written down of it stays.
pub(crate) async fn end_all(control: &Control, cluster: &ClusterId) -> Result<()> {
    let (of, ends) = (cluster.clone(), Ends::default());
    let recorded = ends.clone();
    let write = control.store().write(move |tx| -> Result<Vec<JobId>> {
        recorded.begin();
        let mut ended = Vec::new();
        for job in jobs::open_of_cluster(tx, &of)? {
            let job = end(tx, job)?;
            recorded.record(tx, &job)?;
            ended.push(job.id);
        }
        Ok(ended)
    });
    let ended = write.await?;
    ends.count();
    // Whoever drives one of them or listens to it should hear of it.
    ended.iter().filter_map(|job| control.live_logs().known(job)).for_each(|live| live.touch());
    Ok(())
}

fn end(tx: &mut Tx<'_>, job: Job) -> Result<Job> {
    let (now, cluster) = (tx.now(), job.cluster.clone());
    let outcome = Outcome::Failed { reason: format!("cluster {cluster} was destroyed before it could end in order") };
    let mut job = match job.state {
        State::Collecting(_) => job.moved(now, State::end)?,
        _ if job.state.is_placed() => job.moved(now, |state| state.collect(outcome)?.end())?,
        _ => job.moved(now, |state| state.stop(outcome))?,
    };
    notes::add(&mut job, "its last output and its files may be missing");
    if job.teardown == Teardown::Wanted {
        job.teardown = Teardown::Over;
    }
    jobs::save(tx, &job)?;
    Ok(job)
}

fn reason(cluster: &Cluster) -> String {
    format!("its cluster {} ({}) was destroyed", cluster.name, cluster.id)
}
