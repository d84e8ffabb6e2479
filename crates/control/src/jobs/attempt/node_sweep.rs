//! Compares what guests know of jobs with the rows. Guests stop and forget what no row needs, and keep room for new
//! jobs.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tarn_link::KnownJob;
use tarn_model::ids::{InstanceId, JobId};
use tarn_store::instances;
use tarn_store::job_status::{self, JobStatus};

use super::guest_calls;
use crate::jobs::queue::leased_job::DispatcherState;
use crate::{Control, Error, Result};

/// How many nodes are swept concurrently, and how long one may take.
const CONCURRENT_NODES: usize = 16;
const NODE_TIMEOUT: Duration = Duration::from_secs(60);

/// How many running nodes are read at a time.
const PAGE_SIZE: u32 = 200;

/// How many jobs of one node are considered, because the list of a guest is untrusted.
const MAX_JOBS: usize = 10_000;

/// How many cleanups are run in one sweep of a node.
const MAX_CLEANUPS: usize = 100;

/// A guest accepts a limited number of jobs. When it knows more than half of that, it forgets the jobs that ended
/// longest ago.
const CROWDED_JOBS: usize = 5_000;

/// What has to be done about a job on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cleanup {
    /// The job has no row, or the node needs room.
    Forget,
    /// The attempt must not run any more.
    Stop(u32),
    /// The end of this attempt is stored.
    Dismiss(u32),
}

/// The result of the sweep of a node.
#[derive(Default)]
struct SweepResult {
    /// There were more cleanups than one sweep runs.
    is_more: bool,
    /// An attempt was asked to stop.
    is_stopping: bool,
}

/// Sweeps every running node. Returns whether another sweep is needed soon.
pub(crate) async fn sweep_running_nodes(control: &Control) -> Result<bool> {
    let (mut sweeps, mut is_more, mut after) = (FuturesUnordered::new(), false, None);
    loop {
        let page = control.store().read(|tx| instances::running(tx, after.as_ref(), PAGE_SIZE)).await;
        let page = page.map_err(|error: tarn_store::Error| Error::from(error))?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        for (node, _) in page {
            // Pages do not wait for each other: a slow node delays no others while there are fewer slow ones than this.
            if sweeps.len() >= CONCURRENT_NODES {
                is_more |= sweeps.next().await == Some(true);
            }
            sweeps.push(sweep_within_timeout(control, node));
        }
    }
    while let Some(found) = sweeps.next().await {
        is_more |= found;
    }
    Ok(is_more)
}

async fn sweep_within_timeout(control: &Control, node: InstanceId) -> bool {
    match tokio::time::timeout(NODE_TIMEOUT, sweep_node(control, &node)).await {
        Ok(swept) => swept.is_more || swept.is_stopping,
        Err(_) => {
            tracing::debug!(instance = %node, "the sweep of a node timed out");
            false
        }
    }
}

/// Makes room on a node that accepts no more jobs. One task at a time does this for a node; returns whether it was this
/// one.
pub(super) async fn make_room(control: &Control, shared: &DispatcherState, node: &InstanceId) -> bool {
    let Some(_permit) = RoomPermit::try_acquire(shared, node) else { return false };
    let making = async { while sweep_node(control, node).await.is_more {} };
    tokio::time::timeout(NODE_TIMEOUT, making).await.is_ok()
}

/// The permit to make room on a node.
struct RoomPermit<'a>(&'a DispatcherState, &'a InstanceId);

impl<'a> RoomPermit<'a> {
    fn try_acquire(shared: &'a DispatcherState, node: &'a InstanceId) -> Option<Self> {
        let is_first = shared.nodes_making_room.lock().insert(node.clone());
        is_first.then(|| RoomPermit(shared, node))
    }
}

impl Drop for RoomPermit<'_> {
    fn drop(&mut self) {
        self.0.nodes_making_room.lock().remove(self.1);
    }
}

async fn sweep_node(control: &Control, node: &InstanceId) -> SweepResult {
    let known = match guest_calls::list_known_jobs(control, node).await {
        Ok(known) => known,
        Err(error) => {
            tracing::debug!(instance = %node, %error, "the jobs of a node could not be listed");
            return SweepResult::default();
        }
    };
    // Entries of an untrusted guest that are not valid ids are ignored.
    let known = known.into_iter().take(MAX_JOBS).filter_map(|known| Some((known.job.parse().ok()?, known)));
    let (ids, known): (Vec<JobId>, Vec<KnownJob>) = known.unzip();
    let statuses = match control.store().read(|tx| job_status::of_jobs(tx, &ids)).await {
        Ok(statuses) => statuses,
        Err(error) => {
            let error: tarn_store::Error = error;
            tracing::warn!(instance = %node, %error, "the status of jobs could not be read");
            return SweepResult::default();
        }
    };
    let statuses = statuses.into_iter().map(|status| (status.id.clone(), status)).collect();
    let cleanups = plan_cleanups(&ids, &known, &statuses);
    let is_more = cleanups.len() > MAX_CLEANUPS;
    let mut is_stopping = false;
    for (job, cleanup) in cleanups.into_iter().take(MAX_CLEANUPS) {
        is_stopping |= matches!(cleanup, Cleanup::Stop(_));
        run_cleanup(control, node, job, cleanup).await;
    }
    SweepResult { is_more, is_stopping }
}

/// Decides what has to be done about the jobs that a guest knows.
fn plan_cleanups<'a>(
    ids: &'a [JobId],
    known: &[KnownJob],
    statuses: &HashMap<JobId, JobStatus>,
) -> Vec<(&'a JobId, Cleanup)> {
    let (mut cleanups, mut ended) = (Vec::new(), Vec::new());
    for (id, known) in ids.iter().zip(known) {
        match statuses.get(id) {
            None => cleanups.push((id, Cleanup::Forget)),
            // The removal of a hidden job asks the guest to forget it.
            Some(status) if status.is_hidden => {}
            Some(status) => {
                cleanups.extend(cleanups_for_job(status, known).into_iter().map(|cleanup| (id, cleanup)));
                ended.extend(status.ended.filter(|_| known.attempts.is_empty()).map(|ended| (ended, id)));
            }
        }
    }
    let forgotten = cleanups.iter().filter(|(_, cleanup)| *cleanup == Cleanup::Forget).count();
    let too_many = known.len().saturating_sub(CROWDED_JOBS + forgotten);
    ended.sort_unstable();
    cleanups.extend(ended.into_iter().take(too_many).map(|(_, id)| (id, Cleanup::Forget)));
    cleanups
}

/// Decides what has to be done about a job that has a row.
fn cleanups_for_job(status: &JobStatus, known: &KnownJob) -> Vec<Cleanup> {
    let is_over = |attempt: &&u32| **attempt < status.attempt || status.ended.is_some();
    let over = known.attempts.iter().filter(is_over);
    if known.running && !status.is_placed {
        over.map(|attempt| Cleanup::Stop(*attempt)).collect()
    } else {
        over.map(|attempt| Cleanup::Dismiss(*attempt)).collect()
    }
}

async fn run_cleanup(control: &Control, node: &InstanceId, job: &JobId, cleanup: Cleanup) {
    tracing::debug!(instance = %node, %job, ?cleanup, "a node keeps more of a job than is needed");
    let done = match cleanup {
        Cleanup::Forget => guest_calls::forget_job(control, node, job.as_str()).await,
        Cleanup::Stop(attempt) => guest_calls::request_stop(control, node, job, attempt).await,
        Cleanup::Dismiss(attempt) => guest_calls::dismiss_attempt(control, node, job, attempt).await,
    };
    if let Err(error) = done {
        tracing::debug!(instance = %node, %job, %error, "the cleanup is retried");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_model::Time;

    fn id(number: usize) -> JobId {
        format!("j-{number:012}").parse().unwrap()
    }

    fn known(number: usize, attempts: &[u32], running: bool) -> KnownJob {
        KnownJob { job: id(number).to_string(), attempts: attempts.to_vec(), running }
    }

    fn status(number: usize, ended: Option<i64>) -> (JobId, JobStatus) {
        let ended = ended.map(Time::from_micros);
        let status =
            JobStatus { id: id(number), attempt: 2, is_placed: ended.is_none(), ended, is_hidden: number == 3 };
        (id(number), status)
    }

    fn plan_for(known: &[KnownJob], statuses: impl IntoIterator<Item = (JobId, JobStatus)>) -> Vec<(JobId, Cleanup)> {
        let ids: Vec<JobId> = known.iter().map(|known| known.job.parse().unwrap()).collect();
        let cleanups = plan_cleanups(&ids, known, &statuses.into_iter().collect());
        cleanups.into_iter().map(|(id, cleanup)| (id.clone(), cleanup)).collect()
    }

    /// Attempts and jobs that no row needs are cleaned up.
    #[test]
    fn unneeded_attempts_are_cleaned_up() {
        let known = [
            known(0, &[], false),
            known(1, &[1, 2], true),
            known(2, &[2], true),
            known(3, &[2], true),
            known(4, &[2], false),
            known(5, &[], false),
        ];
        let statuses =
            [status(1, None), status(2, Some(1)), status(3, Some(1)), status(4, Some(1)), status(5, Some(1))];
        let expected = [
            (id(0), Cleanup::Forget),
            (id(1), Cleanup::Dismiss(1)),
            (id(2), Cleanup::Stop(2)),
            (id(4), Cleanup::Dismiss(2)),
        ];
        assert_eq!(plan_for(&known, statuses), expected);
    }

    /// A crowded node forgets the jobs that ended longest ago.
    #[test]
    fn crowded_node_forgets_oldest_jobs() {
        let count = CROWDED_JOBS + 2;
        let mut all: Vec<KnownJob> = (10..10 + count).map(|number| known(number, &[], false)).collect();
        let statuses = |all: usize| (10..10 + all).map(|number| status(number, Some(-(number as i64))));
        let oldest = [(id(9 + count), Cleanup::Forget), (id(8 + count), Cleanup::Forget)];
        assert_eq!(plan_for(&all, statuses(count)), oldest);
        // Forgetting jobs without a row makes room, too. Attempts whose end is not stored stay.
        assert_eq!(plan_for(&all, statuses(count - 1)), [oldest[0].clone(), oldest[1].clone()]);
        all[count - 1].attempts = vec![2];
        assert_eq!(
            plan_for(&all, statuses(count)),
            [(id(9 + count), Cleanup::Dismiss(2)), oldest[1].clone(), (id(7 + count), Cleanup::Forget)]
        );
        assert!(plan_for(&all[..CROWDED_JOBS - 1], statuses(count)).is_empty());
    }
}
