//! What callers do with jobs.

use serde_json::{Value, json};
use tarn_model::clusters::Cluster;
use tarn_model::ids::JobId;
use tarn_model::job_configs::{self, Config};
use tarn_model::jobs::{Job, State, Teardown};
use tarn_model::{Refused, lifecycle, names};
use tarn_store::{Tx, events, jobs};

use super::explain_jobs::Explainer;
use super::{clusters, whose};
use crate::jobs::ends::Ends;
use crate::jobs::removal;
use crate::page::{self, cut, decode_cursor};
use crate::{Caller, Control, Error, Listing, Page, Result};

/// How many jobs of a cluster may wait or run.
pub const MAX_OPEN: u64 = 1000;

/// What a caller wants run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// The text of the file that says what it does.
    pub config: String,
    /// The cluster, by id or name.
    pub cluster: String,
    /// Whether the cluster is destroyed afterwards.
    pub teardown: bool,
    /// Whether it has files, which are uploaded before its start.
    pub has_files: bool,
}

/// A job with all that is shown of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// The job.
    pub job: Job,
    /// The name of its cluster, while that is known.
    pub cluster_name: Option<String>,
    /// What it waits for, since when it runs and where, or how it ended.
    pub explanation: String,
}

/// Checks everything and makes the job, which waits for its files and its start.
pub async fn create(control: &Control, caller: &Caller, new: NewJob) -> Result<JobView> {
    make(control, caller, new, false).await
}

/// Makes a job that has no files and puts it into the line of its cluster, in one transaction.
pub async fn run(control: &Control, caller: &Caller, new: NewJob) -> Result<JobView> {
    make(control, caller, NewJob { has_files: false, ..new }, true).await
}

/// Puts a job into the line of its cluster. One that was started already stays as it is.
pub async fn start(control: &Control, caller: &Caller, job: &str) -> Result<JobView> {
    let (me, asked) = (caller.clone(), job.to_owned());
    let write = control.write(caller, move |tx| {
        let job = find(tx, &me, &asked)?;
        if job.queued.is_some() {
            return Ok(job.id);
        }
        if let State::Ended(outcome) = &job.state {
            return Err(Refused::JobEnded { job: job.id.to_string(), status: outcome.status() }.into());
        }
        match tarn_store::clusters::get(tx, &job.cluster)?.map(|cluster| cluster.state) {
            None | Some(lifecycle::State::Destroying | lifecycle::State::Destroyed) => {
                return Err(Refused::ClusterGone.into());
            }
            Some(_) => {}
        }
        let job = job.start(tx.now())?;
        jobs::save(tx, &job)?;
        record(tx, &me, &job, "job.start", &json!({ "cluster": job.cluster.as_str() }))?;
        Ok(job.id)
    });
    let id = write.await?;
    changed(control, &id);
    view_of(control, &id).await
}

/// The caller's jobs, or his organization's.
pub async fn list(control: &Control, caller: &Caller, listing: Listing) -> Result<Page<JobView>> {
    let after = decode_cursor(listing.cursor.as_deref(), JobId::PREFIX)?;
    let limit = page::limit(listing.limit)?;
    let read = control.store().read(|tx| -> Result<Page<JobView>> {
        let asked = tarn_store::Listing {
            owner: whose(caller, listing.include_org),
            all: listing.all,
            after: after.as_ref().map(|(time, id)| (*time, id.as_str())),
            limit: limit + 1,
        };
        let page = cut(jobs::list(tx, &asked)?, limit, |job| (job.created, job.id.to_string()));
        let mut explainer = Explainer::new(control);
        let views = page.items.into_iter().map(|job| explainer.view(tx, job));
        let items = views.collect::<Result<_>>()?;
        Ok(Page { items, next_cursor: page.next_cursor })
    });
    read.await
}

/// One job.
pub async fn info(control: &Control, caller: &Caller, job: &str) -> Result<JobView> {
    let read = control.store().read(|tx| -> Result<JobView> {
        let job = find(tx, caller, job)?;
        Explainer::new(control).view(tx, job)
    });
    read.await
}

/// Begins to stop a job. What is being stopped or kept already goes on.
pub async fn cancel(control: &Control, caller: &Caller, job: &str) -> Result<JobView> {
    let (me, asked, ends) = (caller.clone(), job.to_owned(), Ends::default());
    let recorded = ends.clone();
    let write = control.write(caller, move |tx| {
        recorded.begin();
        let job = find(tx, &me, &asked)?;
        if matches!(job.state, State::Stopping(_) | State::Collecting(_)) {
            return Ok(job.id);
        }
        let was = job.state.name();
        let mut job = job.cancel(tx.now())?;
        if job.queued.is_none() {
            // What was never started is no reason to destroy anything.
            job.teardown = Teardown::No;
        }
        jobs::save(tx, &job)?;
        record(tx, &me, &job, "job.cancel", &json!({ "was": was }))?;
        recorded.record(tx, &job)?;
        Ok(job.id)
    });
    let id = write.await?;
    ends.count();
    changed(control, &id);
    view_of(control, &id).await
}

/// Hides a job that has ended, and lets everything that was kept of it be removed.
pub async fn delete(control: &Control, caller: &Caller, job: &str) -> Result<JobId> {
    let (me, asked) = (caller.clone(), job.to_owned());
    let write = control.write(caller, move |tx| {
        let job = find(tx, &me, &asked)?;
        let status = job.state.status();
        match &job.state {
            State::Draft | State::Ended(_) => removal::hide(tx, job.clone())?,
            State::Pending | State::Starting | State::Running | State::Stopping(_) | State::Collecting(_) => {
                return Err(Refused::JobNotEnded { job: job.id.to_string(), status }.into());
            }
        }
        record(tx, &me, &job, "job.delete", &json!({ "status": status }))?;
        Ok(job.id)
    });
    let id = write.await?;
    changed(control, &id);
    Ok(id)
}

/// Forgets a job that was never started, with its files, because whoever made it has gone.
pub async fn discard(control: &Control, job: &JobId) -> Result<()> {
    let id = job.clone();
    let write = control.store().write(move |tx| -> Result<()> {
        match jobs::get(tx, &id)? {
            Some(job) if job.state == State::Draft => removal::hide(tx, job),
            Some(_) | None => Ok(()),
        }
    });
    write.await?;
    changed(control, job);
    Ok(())
}

/// Lets a job that was never started wait on, because whoever makes it is still there.
pub async fn stay(control: &Control, job: &JobId) -> Result<()> {
    let id = job.clone();
    Ok(control.store().write(move |tx| jobs::refresh_draft(tx, &id)).await?)
}

/// Says of a job that was never started that it has no files after all.
pub async fn without_files(control: &Control, job: &JobId) -> Result<()> {
    let id = job.clone();
    let write = control.store().write(move |tx| -> Result<()> {
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

/// The job of this id, if it is the caller's.
pub(crate) fn find(tx: &mut Tx<'_>, caller: &Caller, asked: &str) -> Result<Job> {
    let id: JobId = asked.parse()?;
    let job = jobs::get(tx, &id)?.ok_or_else(|| Error::not_found("job", asked))?;
    caller.must_own(&job.owner, "job", asked)?;
    Ok(job)
}

/// A job with all that is shown of it, for whoever has been found to own it.
pub(crate) async fn view_of(control: &Control, id: &JobId) -> Result<JobView> {
    let read = control.store().read(|tx| -> Result<JobView> {
        let job = jobs::get(tx, id)?.ok_or_else(|| Error::not_found("job", id.as_str()))?;
        Explainer::new(control).view(tx, job)
    });
    read.await
}

async fn make(control: &Control, caller: &Caller, new: NewJob, starts: bool) -> Result<JobView> {
    let parsed = job_configs::parse(&new.config);
    let config = parsed.map_err(|wrong| Error::invalid("invalid_config", wrong.to_string()))?;
    let me = caller.clone();
    let write = control.write(caller, move |tx| {
        let cluster = clusters::find_cluster(tx, &me, &new.cluster)?;
        admit(tx, &cluster, new.teardown)?;
        let mut job = fresh(tx, &me, &cluster, &config, &new);
        if starts {
            job = job.start(tx.now())?;
        }
        jobs::insert(tx, &job)?;
        let detail = json!({ "name": job.name, "cluster": cluster.id.as_str(), "teardown": new.teardown });
        record(tx, &me, &job, "job.create", &detail)?;
        if starts {
            record(tx, &me, &job, "job.start", &json!({ "cluster": cluster.id.as_str() }))?;
        }
        Ok(job.id)
    });
    let id = write.await?;
    changed(control, &id);
    view_of(control, &id).await
}

/// Whether a cluster takes one more job.
fn admit(tx: &mut Tx<'_>, cluster: &Cluster, teardown: bool) -> Result<()> {
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
        let message = format!("{MAX_OPEN} jobs wait or run on cluster {} already; wait for some to end", cluster.id);
        return Err(Error::conflict("too_many_jobs", message));
    }
    Ok(())
}

fn fresh(tx: &mut Tx<'_>, caller: &Caller, cluster: &Cluster, config: &Config, new: &NewJob) -> Job {
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

/// Wakes those who drive jobs, and those who listen to this one.
fn changed(control: &Control, job: &JobId) {
    control.jobs_changed().notify_one();
    if let Some(live) = control.live_logs().known(job) {
        live.touch();
    }
}

fn record(tx: &mut Tx<'_>, caller: &Caller, job: &Job, verb: &str, detail: &Value) -> Result<()> {
    Ok(events::record(tx, caller.user.id.as_str(), job.owner.scope(), job.id.as_str(), verb, detail)?)
}
