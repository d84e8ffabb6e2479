//! The operations on jobs that callers ask for.

use tarn_model::access::Action;
use tarn_model::clusters::Cluster;
use tarn_model::events::{Event, JobEvent};
use tarn_model::ids::JobId;
use tarn_model::job_configs::{self, Config};
use tarn_model::jobs::{Job, State, Teardown};
use tarn_model::{Refused, lifecycle, names};
use tarn_store::{Tx, jobs};

use super::explain_jobs::Explainer;
use super::{clusters, whose};
use crate::jobs::queue::ended_metrics::EndedMetrics;
use crate::jobs::queue::removal;
use crate::page::{self, cut, decode_cursor};
use crate::{Caller, Control, Error, Listing, Page, Result};

/// How many jobs of a cluster may be queued or running.
pub const MAX_OPEN: u64 = 1000;

/// A job that a caller wants to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// The text of the job's configuration file.
    pub config: String,
    /// The cluster, by id or name.
    pub cluster: String,
    /// Whether the cluster is destroyed afterwards.
    pub teardown: bool,
    /// Whether files are uploaded before its start.
    pub has_files: bool,
}

/// A job as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    pub job: Job,
    /// The name of its cluster, while the cluster exists.
    pub cluster_name: Option<String>,
    /// What it waits for, since when and where it runs, or how it ended.
    pub explanation: String,
}

/// Checks a new job and creates it as a draft, which waits for its files and its start.
pub async fn create(control: &Control, caller: &Caller, new: NewJob) -> Result<JobView> {
    create_job(control, caller, new, false).await
}

/// Creates a job without files and queues it on its cluster, in one transaction.
pub async fn run(control: &Control, caller: &Caller, new: NewJob) -> Result<JobView> {
    create_job(control, caller, NewJob { has_files: false, ..new }, true).await
}

/// Queues a job on its cluster. A job that was already started is returned unchanged.
pub async fn start(control: &Control, caller: &Caller, job: &str) -> Result<JobView> {
    let (actor, id_text) = (caller.clone(), job.to_owned());
    let write = control.write(caller, move |tx| {
        let job = find_job(tx, &actor, &id_text)?;
        if job.queued.is_some() {
            return Ok(job.id);
        }
        if let State::Ended(outcome) = &job.state {
            return Err(Refused::JobEnded { job: job.id.to_string(), status: outcome.status() }.into());
        }
        let cluster = tarn_store::clusters::get(tx, &job.cluster)?;
        let is_gone =
            |cluster: &Cluster| matches!(cluster.state, lifecycle::State::Destroying | lifecycle::State::Destroyed);
        let cluster = cluster.filter(|cluster| !is_gone(cluster)).ok_or(Refused::ClusterGone)?;
        if job.teardown == Teardown::Wanted {
            actor.must_be_allowed(tx, Action::TearDownCluster, &cluster.owner, cluster.id.as_str())?;
        }
        let job = job.start(tx.now())?;
        jobs::save(tx, &job)?;
        record_job_event(tx, &job, JobEvent::Queued { cluster: job.cluster.clone() })?;
        Ok(job.id)
    });
    let id = write.await?;
    notify_job_changed(control, &id);
    read_job_view(control, &id).await
}

/// Lists the jobs of the caller, or of the caller's organization.
pub async fn list(control: &Control, caller: &Caller, listing: Listing) -> Result<Page<JobView>> {
    let after = decode_cursor(listing.cursor.as_deref(), JobId::PREFIX)?;
    let limit = page::limit(listing.limit)?;
    let read = control.store().read(|tx| -> Result<Page<JobView>> {
        let query = tarn_store::Listing {
            owner: whose(caller, listing.include_org),
            all: listing.all,
            after: after.as_ref().map(|(time, id)| (*time, id.as_str())),
            limit: limit + 1,
        };
        let page = cut(jobs::list(tx, &query)?, limit, |job| (job.created, job.id.to_string()));
        let mut explainer = Explainer::new(control);
        let views = page.items.into_iter().map(|job| explainer.explain_job(tx, job));
        let items = views.collect::<Result<_>>()?;
        Ok(Page { items, next_cursor: page.next_cursor })
    });
    read.await
}

/// Returns one job.
pub async fn info(control: &Control, caller: &Caller, job: &str) -> Result<JobView> {
    let read = control.store().read(|tx| -> Result<JobView> {
        let job = find_job(tx, caller, job)?;
        Explainer::new(control).explain_job(tx, job)
    });
    read.await
}

/// Begins to stop a job. A job that is already being stopped or collected is returned unchanged.
pub async fn cancel(control: &Control, caller: &Caller, job: &str) -> Result<JobView> {
    let (actor, id_text, ended_metrics) = (caller.clone(), job.to_owned(), EndedMetrics::default());
    let recorded = ended_metrics.clone();
    let write = control.write(caller, move |tx| {
        recorded.reset();
        let job = find_job(tx, &actor, &id_text)?;
        actor.must_be_allowed(tx, Action::CancelJob, &job.owner, &id_text)?;
        if matches!(job.state, State::Stopping(_) | State::Collecting(_)) {
            return Ok(job.id);
        }
        let was = job.state.name();
        let mut job = job.cancel(tx.now())?;
        if job.queued.is_none() {
            // A job that was never started destroys no cluster.
            job.teardown = Teardown::No;
        }
        jobs::save(tx, &job)?;
        record_job_event(tx, &job, JobEvent::CancelBegun { was: was.to_owned() })?;
        recorded.record_end(tx, &job)?;
        Ok(job.id)
    });
    let id = write.await?;
    ended_metrics.count_ended();
    notify_job_changed(control, &id);
    read_job_view(control, &id).await
}

/// Hides a job that has ended, so that everything stored of it is removed.
pub async fn delete(control: &Control, caller: &Caller, job: &str) -> Result<JobId> {
    let (actor, id_text) = (caller.clone(), job.to_owned());
    let write = control.write(caller, move |tx| {
        let job = find_job(tx, &actor, &id_text)?;
        actor.must_be_allowed(tx, Action::DeleteJob, &job.owner, &id_text)?;
        let status = job.state.status();
        match &job.state {
            State::Draft | State::Ended(_) => removal::hide_job(tx, job.clone())?,
            State::Pending | State::Starting | State::Running | State::Stopping(_) | State::Collecting(_) => {
                return Err(Refused::JobNotEnded { job: job.id.to_string(), status }.into());
            }
        }
        record_job_event(tx, &job, JobEvent::Deleted { status: status.to_owned() })?;
        Ok(job.id)
    });
    let id = write.await?;
    notify_job_changed(control, &id);
    Ok(id)
}

/// Removes a draft and its files, because the client that created it is gone.
pub async fn discard(control: &Control, job: &JobId) -> Result<()> {
    let id = job.clone();
    let write = control.store().write(move |tx| -> Result<()> {
        match jobs::get(tx, &id)? {
            Some(job) if job.state == State::Draft => removal::hide_job(tx, job),
            Some(_) | None => Ok(()),
        }
    });
    write.await?;
    notify_job_changed(control, job);
    Ok(())
}

/// Keeps a draft from expiring, because the client that created it is still there.
pub async fn refresh_draft(control: &Control, caller: &Caller, job: &JobId) -> Result<()> {
    let id = job.clone();
    control.write(caller, move |tx| Ok(jobs::refresh_draft(tx, &id)?)).await
}

/// Records that a draft has no files after all.
pub async fn without_files(control: &Control, caller: &Caller, job: &JobId) -> Result<()> {
    let id = job.clone();
    let write = control.write(caller, move |tx| {
        let mut job = jobs::get(tx, &id)?.ok_or_else(|| Error::not_found("job", id.as_str()))?;
        if job.state != State::Draft {
            return Err(Refused::JobStarted { job: id.to_string() }.into());
        }
        if job.archive_bytes.is_none() {
            job.archive_bytes = Some(0);
            jobs::save(tx, &job)?;
        }
        Ok(())
    });
    write.await
}

/// Returns the job with this id, if the caller owns it.
pub(crate) fn find_job(tx: &mut Tx<'_>, caller: &Caller, id_text: &str) -> Result<Job> {
    let id: JobId = id_text.parse()?;
    let job = jobs::get(tx, &id)?.ok_or_else(|| Error::not_found("job", id_text))?;
    caller.must_own(&job.owner, "job", id_text)?;
    Ok(job)
}

/// Returns the view of a job that the caller is known to own.
pub(crate) async fn read_job_view(control: &Control, id: &JobId) -> Result<JobView> {
    let read = control.store().read(|tx| -> Result<JobView> {
        let job = jobs::get(tx, id)?.ok_or_else(|| Error::not_found("job", id.as_str()))?;
        Explainer::new(control).explain_job(tx, job)
    });
    read.await
}

async fn create_job(control: &Control, caller: &Caller, new: NewJob, starts: bool) -> Result<JobView> {
    let parsed = job_configs::parse(&new.config);
    let config = parsed.map_err(|wrong| Error::invalid("invalid_config", wrong.to_string()))?;
    let actor = caller.clone();
    let write = control.write(caller, move |tx| {
        let cluster = clusters::find_cluster(tx, &actor, &new.cluster)?;
        if new.teardown {
            actor.must_be_allowed(tx, Action::TearDownCluster, &cluster.owner, &new.cluster)?;
        }
        check_cluster_accepts_job(tx, &cluster, new.teardown)?;
        let mut job = new_draft(tx, &actor, &cluster, &config, &new);
        if starts {
            job = job.start(tx.now())?;
        }
        jobs::insert(tx, &job)?;
        let (name, cluster) = (job.name.clone(), cluster.id.clone());
        record_job_event(tx, &job, JobEvent::Created { name, cluster: cluster.clone(), teardown: new.teardown })?;
        if starts {
            record_job_event(tx, &job, JobEvent::Queued { cluster })?;
        }
        Ok(job.id)
    });
    let id = write.await?;
    notify_job_changed(control, &id);
    read_job_view(control, &id).await
}

/// Checks that a cluster accepts one more job.
fn check_cluster_accepts_job(tx: &mut Tx<'_>, cluster: &Cluster, teardown: bool) -> Result<()> {
    if cluster.state != lifecycle::State::Running {
        return Err(Refused::ClusterNotRunning { state: cluster.state.name() }.into());
    }
    if let Some(last) = jobs::tears_down(tx, &cluster.id)? {
        return Err(Refused::ClusterTornDown { cluster: cluster.id.to_string(), job: last.id.to_string() }.into());
    }
    if teardown && cluster.deletion_protection {
        return Err(Refused::DeletionProtected { what: "cluster", id: cluster.id.to_string() }.into());
    }
    if jobs::count_open_of_cluster(tx, &cluster.id)? >= MAX_OPEN {
        let message = format!(
            "{MAX_OPEN} jobs are already queued or running on cluster {}; wait until some have ended",
            cluster.id
        );
        return Err(Error::conflict("too_many_jobs", message));
    }
    Ok(())
}

fn new_draft(tx: &mut Tx<'_>, caller: &Caller, cluster: &Cluster, config: &Config, new: &NewJob) -> Job {
    let now = tx.now();
    Job {
        id: JobId::fresh(tx.ids()),
        owner: super::request_owner(caller, &cluster.owner),
        cluster: cluster.id.clone(),
        instance_type: cluster.instance_type.clone(),
        name: config.name.clone().unwrap_or_else(|| names::generate(tx.ids(), false)),
        config: config.clone(),
        teardown: if new.teardown { Teardown::Wanted } else { Teardown::No },
        archive_bytes: (!new.has_files).then_some(0),
        state: State::Draft,
        since: now,
        attempt: 1,
        note: None,
        log_bytes: 0,
        created: now,
        queued: None,
        started: None,
        ended: None,
        version: 0,
    }
}

/// Wakes the dispatcher, and the followers of this job.
fn notify_job_changed(control: &Control, job: &JobId) {
    control.memory.jobs_changed.notify_one();
    if let Some(live) = control.memory.live_logs.find_log(job) {
        live.notify_state_change();
    }
}

fn record_job_event(tx: &mut Tx<'_>, job: &Job, event: JobEvent) -> Result<()> {
    Ok(tx.record(job.owner.scope(), Event::Job(job.id.clone(), event))?)
}
