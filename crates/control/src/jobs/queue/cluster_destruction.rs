//! The jobs of a cluster that is being destroyed: no job outlives its cluster.

use std::time::Duration;

use tarn_model::clusters::Cluster;
use tarn_model::ids::{ClusterId, JobId};
use tarn_model::jobs::{Job, Outcome, State, Teardown};
use tarn_store::{Tx, jobs};

use super::ended_metrics::EndedMetrics;
use super::job_note;
use crate::{Control, Error, Result};

/// How long jobs may take after their stop grace to end regularly, with their outputs collected. Then they are ended by
/// force.
const GRACEFUL_TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Begins to end all jobs of a cluster, in the transaction that begins its destruction. A job without a process ends at
/// once.
pub(crate) fn stop_jobs_of_cluster(tx: &mut Tx<'_>, cluster: &Cluster, ended_metrics: &EndedMetrics) -> Result<()> {
    let now = tx.now();
    for job in jobs::open_of_cluster(tx, &cluster.id)? {
        let outcome = Outcome::Failed { reason: destroyed_reason(cluster) };
        let mut job = job.stop(now, outcome)?;
        // The job asked for this destruction, so nothing is left to do after it.
        if job.teardown == Teardown::Wanted {
            job.teardown = Teardown::Over;
        }
        jobs::save(tx, &job)?;
        ended_metrics.record_end(tx, &job)?;
    }
    Ok(())
}

/// Waits until no job of a cluster is open any more, up to a timeout. Returns whether all have ended.
pub(crate) async fn wait_until_jobs_ended(control: &Control, cluster: &ClusterId) -> Result<bool> {
    let settings = control.settings();
    let timeout = settings.jobs.stop_grace.saturating_add(GRACEFUL_TIMEOUT).min(settings.step_timeout / 2);
    let all_ended = async {
        loop {
            if !control.store().read(|tx| jobs::is_any_open(tx, cluster)).await.map_err(Error::from)? {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    match tokio::time::timeout(timeout, all_ended).await {
        Ok(ended) => ended.map(|()| true),
        Err(_) => Ok(false),
    }
}

/// Ends all jobs that are still open. The task that runs such a job loses its lease; what is stored of the job stays.
pub(crate) async fn end_jobs_by_force(control: &Control, cluster: &ClusterId) -> Result<()> {
    let (of, ended_metrics) = (cluster.clone(), EndedMetrics::default());
    let recorded = ended_metrics.clone();
    let write = control.store().write(move |tx| -> Result<Vec<JobId>> {
        recorded.reset();
        let mut ended = Vec::new();
        for job in jobs::open_of_cluster(tx, &of)? {
            let reason = format!("cluster {of} was destroyed before the job could end regularly");
            let job = end_job_by_force(tx, job, reason)?;
            recorded.record_end(tx, &job)?;
            ended.push(job.id);
        }
        Ok(ended)
    });
    let ended = write.await?;
    ended_metrics.count_ended();
    // Wakes the tasks that run these jobs and the followers of their logs.
    ended.iter().filter_map(|job| control.memory.live_logs.find_log(job)).for_each(|live| live.notify_state_change());
    Ok(())
}

/// Ends a job that is open, in a transaction, without its node.
pub(crate) fn end_job_by_force(tx: &mut Tx<'_>, job: Job, reason: String) -> Result<Job> {
    let (now, outcome) = (tx.now(), Outcome::Failed { reason });
    let mut job = match job.state {
        State::Collecting(_) => job.moved(now, State::end)?,
        _ if job.state.is_placed() => job.moved(now, |state| state.collect(outcome)?.end())?,
        _ => job.moved(now, |state| state.stop(outcome))?,
    };
    job_note::add_note(&mut job, "its last output and its files may be missing");
    if job.teardown == Teardown::Wanted {
        job.teardown = Teardown::Over;
    }
    jobs::save(tx, &job)?;
    Ok(job)
}

fn destroyed_reason(cluster: &Cluster) -> String {
    format!("its cluster {} ({}) was destroyed", cluster.name, cluster.id)
}
