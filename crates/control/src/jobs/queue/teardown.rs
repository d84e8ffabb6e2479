//! Clusters that are destroyed after a job: as soon as it has ended and no other job of the cluster is open.

use tarn_model::Refused;
use tarn_model::ids::ClusterId;
use tarn_model::jobs::{Job, Teardown};
use tarn_store::{Tx, attachments, clusters, events, jobs};

use super::ends::Ends;
use super::notes;
use crate::operations::clusters::{Released, release};
use crate::{Control, Error, Kind, Result};

/// What came of it.
enum Begun {
    /// There is nothing more to do; perhaps something to tell the owner.
    Over(Option<String>),
    /// The cluster is busy with something else.
    Later,
}

/// Destroys the cluster of a job that has ended in this transaction, if one of its jobs wanted that and none is open any more.
/// Returns the one that wanted it, if it has changed.
pub(super) fn after(tx: &mut Tx<'_>, control: &Control, ended: &Job, ends: &Ends) -> Result<Option<Job>> {
    match jobs::tears_down(tx, &ended.cluster)? {
        Some(wanting) if wanting.ended.is_some() => settle(tx, control, wanting, ends),
        _ => Ok(None),
    }
}

/// Leaves the cluster of a job that ends in this transaction and whose outputs are only there, whoever wanted it destroyed. The
/// job itself is saved by the caller.
pub(super) fn leave(tx: &mut Tx<'_>, job: &mut Job) -> Result<()> {
    let cluster = job.cluster.clone();
    if job.teardown == Teardown::Wanted {
        job.teardown = Teardown::Over;
        notes::add(job, &format!("cluster {cluster} was left, because its outputs could not be kept"));
    } else if let Some(mut wanting) = jobs::tears_down(tx, &cluster)? {
        wanting.teardown = Teardown::Over;
        let note = format!("cluster {cluster} was left, because the outputs of job {} could not be kept", job.id);
        notes::add(&mut wanting, &note);
        jobs::save(tx, &wanting)?;
    }
    Ok(())
}

/// Looks after all that wait for something else to end.
pub(super) async fn tick(control: &Control) -> Result<()> {
    let waiting = control.store().read(jobs::tearing_down).await.map_err(Error::from)?;
    for job in waiting {
        let (own, id, ends) = (control.clone(), job.id.clone(), Ends::default());
        let recorded = ends.clone();
        let write = control.store().write(move |tx| -> Result<bool> {
            recorded.begin();
            settle(tx, &own, job.clone(), &recorded).map(|changed| changed.is_some())
        });
        match write.await {
            Ok(true) => {
                ends.count();
                control.due().notify_one();
            }
            Ok(false) => {}
            Err(error) if error.kind == Kind::Conflict => tracing::debug!(job = %id, "it changed meanwhile"),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Begins the destruction after a job, unless other jobs are open; returns the job if it has changed.
fn settle(tx: &mut Tx<'_>, control: &Control, mut wanting: Job, ends: &Ends) -> Result<Option<Job>> {
    if jobs::is_any_open(tx, &wanting.cluster)? {
        return Ok(None);
    }
    match begin(tx, control, &wanting, ends)? {
        Begun::Later => Ok(None),
        Begun::Over(note) => {
            wanting.teardown = Teardown::Over;
            if let Some(note) = note {
                notes::add(&mut wanting, &note);
            }
            jobs::save(tx, &wanting)?;
            wanting.version += 1;
            Ok(Some(wanting))
        }
    }
}

fn begin(tx: &mut Tx<'_>, control: &Control, job: &Job, ends: &Ends) -> Result<Begun> {
    let Some(cluster) = clusters::get(tx, &job.cluster)? else { return Ok(Begun::Over(None)) };
    let (now, held) = (tx.now(), attachments::of_cluster(tx, &cluster.id)?);
    let (id, owner): (ClusterId, _) = (cluster.id.clone(), job.owner.clone());
    let was = cluster.state.clone();
    match cluster.begin_destroy(held.as_ref(), now) {
        Ok(cluster) => {
            let begun = Released { was: &was, owner, actor: events::ENGINE };
            release(tx, cluster, begun, control.settings().work_deadline, ends)?;
            Ok(Begun::Over(None))
        }
        Err(Refused::DeletionProtected { .. }) => {
            let note = format!("cluster {id} was not destroyed after it, because deletion protection is on");
            Ok(Begun::Over(Some(note)))
        }
        Err(Refused::ClusterGone) => Ok(Begun::Over(None)),
        Err(_) => Ok(Begun::Later),
    }
}
