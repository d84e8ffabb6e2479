//! Clusters that are destroyed after a job: as soon as the job has ended and no other job of the cluster is open.

use tarn_model::Refused;
use tarn_model::ids::ClusterId;
use tarn_model::jobs::{Job, Teardown};
use tarn_store::{Tx, attachments, clusters, jobs};

use super::ended_metrics::EndedMetrics;
use super::job_note;
use crate::operations::clusters::release;
use crate::{Control, Error, Kind, Result};

/// How many jobs are read at a time.
const PAGE_SIZE: u32 = 100;

enum TeardownStep {
    /// Nothing is left to do; there may be a note for the owner.
    Over(Option<String>),
    /// The cluster is busy with another request.
    Later,
}

/// Destroys the cluster of a job that ended in this transaction, if one of its jobs asked for that and none is open any
/// more. Returns the job that asked for it, if it has changed.
pub(in crate::jobs) fn tear_down_after(
    tx: &mut Tx<'_>,
    control: &Control,
    ended: &Job,
    ended_metrics: &EndedMetrics,
) -> Result<Option<Job>> {
    match jobs::tears_down(tx, &ended.cluster)? {
        Some(requester) if requester.ended.is_some() => tear_down_if_idle(tx, control, requester, ended_metrics),
        _ => Ok(None),
    }
}

/// Keeps the cluster of a job that ends in this transaction and whose outputs exist only on its node, even if a job
/// asked for its teardown. The caller saves the job itself.
pub(in crate::jobs) fn keep_cluster(tx: &mut Tx<'_>, job: &mut Job) -> Result<()> {
    let cluster = job.cluster.clone();
    if job.teardown == Teardown::Wanted {
        job.teardown = Teardown::Over;
        job_note::add_note(job, &format!("cluster {cluster} was kept, because its outputs could not be saved"));
    } else if let Some(mut requester) = jobs::tears_down(tx, &cluster)? {
        requester.teardown = Teardown::Over;
        let note = format!("cluster {cluster} was kept, because the outputs of job {} could not be saved", job.id);
        job_note::add_note(&mut requester, &note);
        jobs::save(tx, &requester)?;
    }
    Ok(())
}

/// Destroys the clusters whose teardown was delayed by another request.
pub(super) async fn tear_down_idle_clusters(control: &Control) -> Result<()> {
    let mut after = None;
    loop {
        let page = control.store().read(|tx| jobs::tearing_down(tx, after.as_ref(), PAGE_SIZE)).await;
        let page = page.map_err(|error: tarn_store::Error| Error::from(error))?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id.clone());
        tear_down_each(control, page).await?;
    }
}

async fn tear_down_each(control: &Control, waiting: Vec<Job>) -> Result<()> {
    for job in waiting {
        let (own, id, ended_metrics) = (control.clone(), job.id.clone(), EndedMetrics::default());
        let recorded = ended_metrics.clone();
        let write = control.store().write(move |tx| -> Result<bool> {
            recorded.reset();
            tear_down_if_idle(tx, &own, job.clone(), &recorded).map(|changed| changed.is_some())
        });
        match write.await {
            Ok(true) => {
                ended_metrics.count_ended();
                control.memory.due.notify_one();
            }
            Ok(false) => {}
            Err(error) if error.kind == Kind::Conflict => tracing::debug!(job = %id, "the job changed meanwhile"),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Begins the destruction after a job, unless other jobs are open. Returns the job if it has changed.
fn tear_down_if_idle(
    tx: &mut Tx<'_>,
    control: &Control,
    mut requester: Job,
    ended_metrics: &EndedMetrics,
) -> Result<Option<Job>> {
    if jobs::is_any_open(tx, &requester.cluster)? {
        return Ok(None);
    }
    match begin_teardown(tx, control, &requester, ended_metrics)? {
        TeardownStep::Later => Ok(None),
        TeardownStep::Over(note) => {
            requester.teardown = Teardown::Over;
            if let Some(note) = note {
                job_note::add_note(&mut requester, &note);
            }
            jobs::save(tx, &requester)?;
            requester.version += 1;
            Ok(Some(requester))
        }
    }
}

fn begin_teardown(tx: &mut Tx<'_>, control: &Control, job: &Job, ended_metrics: &EndedMetrics) -> Result<TeardownStep> {
    let Some(cluster) = clusters::get(tx, &job.cluster)? else { return Ok(TeardownStep::Over(None)) };
    let (now, attachment) = (tx.now(), attachments::of_cluster(tx, &cluster.id)?);
    let (id, owner): (ClusterId, _) = (cluster.id.clone(), job.owner.clone());
    let was = cluster.state.clone();
    match cluster.begin_destroy(attachment.as_ref(), now) {
        Ok(cluster) => {
            release(tx, cluster, &was, owner, control.settings().work_deadline, ended_metrics)?;
            Ok(TeardownStep::Over(None))
        }
        Err(Refused::DeletionProtected { .. }) => {
            let note = format!("cluster {id} was not destroyed after it, because deletion protection is on");
            Ok(TeardownStep::Over(Some(note)))
        }
        Err(Refused::ClusterGone) => Ok(TeardownStep::Over(None)),
        Err(_) => Ok(TeardownStep::Later),
    }
}
