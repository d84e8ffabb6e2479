//! Forgetting jobs: what is too old or was deleted goes from the shelf first and from the database then. Nodes are told; those
//! that do not hear it forget what has no row when they are looked at.

use std::time::Duration;

use futures::StreamExt;
use tarn_model::ids::{InstanceId, JobId};
use tarn_model::jobs::{Job, State, Teardown};
use tarn_model::lifecycle;
use tarn_store::{Tx, instances, job_nodes, jobs};

use super::{guests, shelf};
use crate::{Control, Error, Kind, Result};

/// So many are looked at in one go, and so many are removed at the same time.
const SOME: u32 = 100;
const AT_ONCE: usize = 16;

/// How long the nodes may take to hear of it, all of them together.
const TELLING: Duration = Duration::from_secs(10);

/// Hides a job for ever, in a transaction. No cluster waits for one that was never started.
pub(crate) fn hide(tx: &mut Tx<'_>, mut job: Job) -> Result<()> {
    if job.state == State::Draft && job.teardown != Teardown::No {
        job.teardown = Teardown::No;
        jobs::save(tx, &job)?;
        job.version += 1;
    }
    Ok(jobs::set_removing(tx, &job)?)
}

/// Hides what is too old: drafts that were never started, and what ended long ago.
pub(crate) async fn expire(control: &Control) -> Result<()> {
    let settings = &control.settings().jobs;
    let read = control.store().read(|tx| -> Result<Vec<Job>> {
        let now = tx.now();
        let mut old = jobs::expired_drafts(tx, now.before(settings.draft_timeout), SOME)?;
        old.extend(jobs::expired(tx, now.before(settings.keep), SOME)?);
        Ok(old)
    });
    for job in read.await? {
        match control.store().write(move |tx| hide(tx, job.clone())).await {
            // One that was started just now is no draft any more.
            Err(error) if error.kind == Kind::Conflict => {}
            done => done?,
        }
    }
    Ok(())
}

/// Removes everything of jobs that are hidden; says whether something is left for later.
pub(crate) async fn remove(control: &Control) -> Result<bool> {
    let (mut after, mut is_left) = (None, false);
    loop {
        let last: Option<JobId> = after.take();
        let hidden = control.store().read(|tx| jobs::removing(tx, last.as_ref(), SOME)).await.map_err(Error::from)?;
        let Some(job) = hidden.last() else { return Ok(is_left) };
        after = Some(job.id.clone());
        let removals: Vec<_> = hidden.into_iter().map(|job| remove_one(control, job)).collect();
        let done: Vec<_> = futures::stream::iter(removals).buffer_unordered(AT_ONCE).collect().await;
        is_left |= done.iter().any(Option::is_none);
        tell(control, done.into_iter().flatten().flatten().collect()).await;
    }
}

/// Removes everything of a job but what nodes have of it, and says which do; `None` if that did not work.
async fn remove_one(control: &Control, job: Job) -> Option<Vec<(InstanceId, JobId)>> {
    match remove_all(control, &job.id).await {
        Ok(nodes) => Some(nodes.into_iter().map(|node| (node, job.id.clone())).collect()),
        Err(error) => {
            let (id, cause) = (&job.id, &error.cause);
            tracing::warn!(job = %id, ?cause, "a job could not be forgotten; it is tried again: {error}");
            None
        }
    }
}

async fn remove_all(control: &Control, id: &JobId) -> Result<Vec<InstanceId>> {
    shelf::remove_all(control, id).await?;
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

/// Lets nodes forget jobs. A slow one keeps nobody waiting for long.
async fn tell(control: &Control, forgotten: Vec<(InstanceId, JobId)>) {
    let telling = futures::stream::iter(forgotten).for_each_concurrent(AT_ONCE, |(node, job)| async move {
        if let Err(trouble) = guests::forget(control, &node, job.as_str()).await {
            tracing::debug!(instance = %node, %job, %trouble, "left to the sweep");
        }
    });
    if tokio::time::timeout(TELLING, telling).await.is_err() {
        tracing::debug!("not all nodes have forgotten what was removed; it is left to the sweep");
    }
}

/// Removes objects that belong to no job, and archives of jobs that ended before they were ever sent.
pub(crate) async fn sweep_shelf(control: &Control) -> Result<()> {
    let mut after = None;
    loop {
        let present = shelf::jobs_with_objects(control, after.as_ref()).await?;
        let Some(last) = present.last().cloned() else { return Ok(()) };
        let unknown = control.store().read(|tx| jobs::unknown(tx, &present)).await.map_err(Error::from)?;
        for id in &unknown {
            tracing::info!(job = %id, "things of a job that does not exist are removed");
            shelf::remove_all(control, id).await?;
        }
        for id in present.iter().filter(|id| !unknown.contains(id)) {
            let job = control.store().read(|tx| jobs::get(tx, id)).await.map_err(Error::from)?;
            if let Some(job) = job.filter(|job| job.ended.is_some() && job.has_files()) {
                remove_archive(control, job).await?;
            }
        }
        after = Some(last);
    }
}

async fn remove_archive(control: &Control, mut job: Job) -> Result<()> {
    shelf::remove_files(control, &job.id).await?;
    job.archive_bytes = Some(0);
    match control.store().write(move |tx| jobs::save(tx, &job)).await.map_err(Error::from) {
        // Whoever changed it meanwhile leaves it for the next time.
        Err(error) if error.kind == Kind::Conflict => Ok(()),
        done => done,
    }
}
