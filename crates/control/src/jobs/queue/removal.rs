//! Removal of jobs that expired or were deleted: first their objects, then their rows. The nodes are asked to forget
//! them; a node that cannot be reached forgets jobs without a row at the next sweep.

use std::time::Duration;

use futures::StreamExt;
use tarn_model::ids::{InstanceId, JobId};
use tarn_model::jobs::{Job, State, Teardown};
use tarn_model::lifecycle;
use tarn_store::{Tx, clock, instances, job_nodes, jobs};

use crate::jobs::attempt::guest_calls;
use crate::jobs::files::job_files;
use crate::{Control, Error, Kind, Result};

/// How many jobs are read at a time, and how many are removed concurrently.
const PAGE_SIZE: u32 = 100;
const CONCURRENT_REMOVALS: usize = 16;

/// How long all nodes together may take to forget removed jobs.
const FORGET_TIMEOUT: Duration = Duration::from_secs(10);

/// Hides a job for good, in a transaction. No teardown waits for a job that was never started.
pub(crate) fn hide_job(tx: &mut Tx<'_>, mut job: Job) -> Result<()> {
    if job.state == State::Draft && job.teardown != Teardown::No {
        job.teardown = Teardown::No;
        jobs::save(tx, &job)?;
        job.version += 1;
    }
    Ok(jobs::set_removing(tx, &job)?)
}

/// Hides expired jobs: drafts that were never started, and jobs that ended long ago.
pub(crate) async fn hide_expired_jobs(control: &Control) -> Result<()> {
    let settings = &control.settings().jobs;
    let read = control.store().read(|tx| -> Result<Vec<Job>> {
        let abandoned = clock::passed_before(tx, settings.draft_timeout)?;
        let mut old = jobs::expired_drafts(tx, abandoned, PAGE_SIZE)?;
        let ended = clock::passed_before(tx, settings.keep)?;
        old.extend(jobs::expired(tx, ended, PAGE_SIZE)?);
        Ok(old)
    });
    for job in read.await? {
        match control.store().write(move |tx| hide_job(tx, job.clone())).await {
            // A draft that was started in the meantime is kept.
            Err(error) if error.kind == Kind::Conflict => {}
            done => done?,
        }
    }
    Ok(())
}

/// Removes all hidden jobs. Returns whether some could not be removed.
pub(crate) async fn remove_hidden_jobs(control: &Control) -> Result<bool> {
    let (mut after, mut is_left) = (None, false);
    loop {
        let last: Option<JobId> = after.take();
        let hidden =
            control.store().read(|tx| jobs::removing(tx, last.as_ref(), PAGE_SIZE)).await.map_err(Error::from)?;
        let Some(job) = hidden.last() else { return Ok(is_left) };
        after = Some(job.id.clone());
        let removals: Vec<_> = hidden.into_iter().map(|job| remove_hidden_job(control, job)).collect();
        let done: Vec<_> = futures::stream::iter(removals).buffer_unordered(CONCURRENT_REMOVALS).collect().await;
        is_left |= done.iter().any(Option::is_none);
        forget_on_nodes(control, done.into_iter().flatten().flatten().collect()).await;
    }
}

/// Removes the objects and rows of a job. Returns the nodes that still hold something of it, or `None` if the removal
/// failed.
async fn remove_hidden_job(control: &Control, job: Job) -> Option<Vec<(InstanceId, JobId)>> {
    match remove_objects_and_rows(control, &job.id).await {
        Ok(nodes) => Some(nodes.into_iter().map(|node| (node, job.id.clone())).collect()),
        Err(error) => {
            let (id, cause) = (&job.id, &error.cause);
            tracing::warn!(job = %id, ?cause, "a job could not be removed; the removal is retried: {error}");
            None
        }
    }
}

async fn remove_objects_and_rows(control: &Control, id: &JobId) -> Result<Vec<InstanceId>> {
    job_files::remove_all(control, id).await?;
    let id = id.clone();
    let write = control.store().write(move |tx| -> Result<Vec<InstanceId>> {
        let mut running = Vec::new();
        for node in job_nodes::of_job(tx, &id)? {
            let instance = instances::get(tx, &node.instance)?;
            running.extend(instance.filter(|node| node.state == lifecycle::State::Running).map(|node| node.id));
        }
        jobs::remove(tx, &id)?;
        Ok(running)
    });
    write.await
}

/// Asks nodes to forget jobs. The timeout bounds how long a slow node delays the others.
async fn forget_on_nodes(control: &Control, forgotten: Vec<(InstanceId, JobId)>) {
    let forgetting =
        futures::stream::iter(forgotten).for_each_concurrent(CONCURRENT_REMOVALS, |(node, job)| async move {
            if let Err(error) = guest_calls::forget_job(control, &node, job.as_str()).await {
                tracing::debug!(instance = %node, %job, %error, "left to the next sweep");
            }
        });
    if tokio::time::timeout(FORGET_TIMEOUT, forgetting).await.is_err() {
        tracing::debug!("not all nodes have forgotten removed jobs; the next sweep continues");
    }
}

/// Removes objects that belong to no job, and archives of jobs that ended before their files were sent to a node.
pub(crate) async fn remove_orphaned_objects(control: &Control) -> Result<()> {
    let mut after = None;
    loop {
        let stored = job_files::jobs_with_objects(control, after.as_ref()).await?;
        let Some(last) = stored.last().cloned() else { return Ok(()) };
        let unknown = control.store().read(|tx| jobs::unknown(tx, &stored)).await.map_err(Error::from)?;
        for id in &unknown {
            tracing::info!(job = %id, "removing the objects of a job that does not exist");
            job_files::remove_all(control, id).await?;
        }
        for id in stored.iter().filter(|id| !unknown.contains(id)) {
            let job = control.store().read(|tx| jobs::get(tx, id)).await.map_err(Error::from)?;
            if let Some(job) = job.filter(|job| job.ended.is_some() && job.has_files()) {
                remove_unused_archive(control, job).await?;
            }
        }
        after = Some(last);
    }
}

async fn remove_unused_archive(control: &Control, mut job: Job) -> Result<()> {
    job_files::remove_files(control, &job.id).await?;
    job.archive_bytes = Some(0);
    match control.store().write(move |tx| jobs::save(tx, &job)).await.map_err(Error::from) {
        // The job was changed in the meantime; the next sweep handles it.
        Err(error) if error.kind == Kind::Conflict => Ok(()),
        done => done,
    }
}
