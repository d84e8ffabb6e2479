//! What guests still know of jobs, compared with the rows: nothing runs and nothing is kept there that no row needs, and there is
//! room for jobs that come.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use futures::StreamExt;
use tarn_link::KnownJob;
use tarn_model::ids::{InstanceId, JobId};
use tarn_store::instances;
use tarn_store::job_standings::{self, Standing};

use super::guests;
use super::hand::Shared;
use crate::{Control, Error, Result};

/// So many nodes are looked at at the same time, each for so long.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(60);

/// So many jobs of one node are looked at; a guest may say anything.
const MAX_JOBS: usize = 10_000;

/// So many things are done about them in one go.
const MAX_ERRANDS: usize = 100;

/// A guest takes only so many jobs. When it knows more than half as many, it forgets those that ended longest ago.
const CROWDED: usize = 5_000;

/// What has to be done about a job on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errand {
    /// Nobody knows the job, or others need its room.
    Forget,
    /// It should not run any more.
    Stop(u32),
    /// The end of this attempt is written down.
    Dismiss(u32),
}

/// What a look at a node came to.
#[derive(Default)]
struct Looked {
    /// There was more to do than is done in one go.
    is_more: bool,
    /// Something was told to stop there.
    is_stopping: bool,
}

/// Looks at every running node; says whether something has to be looked at again soon.
pub(crate) async fn sweep(control: &Control) -> Result<bool> {
    let running = control.store().read(instances::running).await.map_err(Error::from)?;
    let looks: Vec<_> = running.into_iter().map(|(node, _)| in_time(control, node)).collect();
    let found: Vec<bool> = futures::stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
    Ok(found.contains(&true))
}

async fn in_time(control: &Control, node: InstanceId) -> bool {
    match tokio::time::timeout(PATIENCE, look(control, &node)).await {
        Ok(looked) => looked.is_more || looked.is_stopping,
        Err(_) => {
            tracing::debug!(instance = %node, "it took too long to look at its jobs");
            false
        }
    }
}

/// Makes room on a node that takes no more jobs. Of those who want that at the same time one does it; says whether it was this one.
pub(super) async fn make_room(control: &Control, shared: &Shared, node: &InstanceId) -> bool {
    let Some(_turn) = Turn::take(shared, node) else { return false };
    let making = async { while look(control, node).await.is_more {} };
    tokio::time::timeout(PATIENCE, making).await.is_ok()
}

/// That of whoever makes room on a node.
struct Turn<'a>(&'a Shared, &'a InstanceId);

impl<'a> Turn<'a> {
    fn take(shared: &'a Shared, node: &'a InstanceId) -> Option<Self> {
        let is_first = shared.crowded.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone());
        is_first.then(|| Turn(shared, node))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.crowded.lock().unwrap_or_else(PoisonError::into_inner).remove(self.1);
    }
}

async fn look(control: &Control, node: &InstanceId) -> Looked {
    let known = match guests::known(control, node).await {
        Ok(known) => known,
        Err(trouble) => {
            tracing::debug!(instance = %node, %trouble, "its jobs could not be looked at");
            return Looked::default();
        }
    };
    // A guest chooses its words: only what can be an id is one.
    let known = known.into_iter().take(MAX_JOBS).filter_map(|known| Some((known.job.parse().ok()?, known)));
    let (ids, known): (Vec<JobId>, Vec<KnownJob>) = known.unzip();
    let standings = match control.store().read(|tx| job_standings::of(tx, &ids)).await {
        Ok(standings) => standings,
        Err(error) => {
            let error: tarn_store::Error = error;
            tracing::warn!(instance = %node, %error, "the database does not say how jobs are");
            return Looked::default();
        }
    };
    let standings = standings.into_iter().map(|standing| (standing.id.clone(), standing)).collect();
    let errands = errands(&ids, &known, &standings);
    let is_more = errands.len() > MAX_ERRANDS;
    let mut is_stopping = false;
    for (job, errand) in errands.into_iter().take(MAX_ERRANDS) {
        is_stopping |= matches!(errand, Errand::Stop(_));
        run(control, node, job, errand).await;
    }
    Looked { is_more, is_stopping }
}

/// What the rows have to say about what a guest knows.
fn errands<'a>(ids: &'a [JobId], known: &[KnownJob], standings: &HashMap<JobId, Standing>) -> Vec<(&'a JobId, Errand)> {
    let (mut errands, mut ended) = (Vec::new(), Vec::new());
    for (id, known) in ids.iter().zip(known) {
        match standings.get(id) {
            None => errands.push((id, Errand::Forget)),
            // Whoever removes it lets it be forgotten.
            Some(standing) if standing.is_hidden => {}
            Some(standing) => {
                errands.extend(about(standing, known).into_iter().map(|errand| (id, errand)));
                ended.extend(standing.ended.filter(|_| known.attempts.is_empty()).map(|ended| (ended, id)));
            }
        }
    }
    let forgotten = errands.iter().filter(|(_, errand)| *errand == Errand::Forget).count();
    let too_many = known.len().saturating_sub(CROWDED + forgotten);
    ended.sort_unstable();
    errands.extend(ended.into_iter().take(too_many).map(|(_, id)| (id, Errand::Forget)));
    errands
}

/// What has to be done about a job that has a row.
fn about(standing: &Standing, known: &KnownJob) -> Vec<Errand> {
    let is_over = |attempt: &&u32| **attempt < standing.attempt || standing.ended.is_some();
    let over = known.attempts.iter().filter(is_over);
    match known.running && !standing.is_placed {
        true => over.map(|attempt| Errand::Stop(*attempt)).collect(),
        false => over.map(|attempt| Errand::Dismiss(*attempt)).collect(),
    }
}

async fn run(control: &Control, node: &InstanceId, job: &JobId, errand: Errand) {
    tracing::debug!(instance = %node, %job, ?errand, "a node keeps more of a job than is needed");
    let done = match errand {
        Errand::Forget => guests::forget(control, node, job.as_str()).await,
        Errand::Stop(attempt) => guests::stop(control, node, job, attempt).await,
        Errand::Dismiss(attempt) => guests::dismiss(control, node, job, attempt).await,
    };
    if let Err(trouble) = done {
        tracing::debug!(instance = %node, %job, %trouble, "it is tried again");
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

    fn standing(number: usize, ended: Option<i64>) -> (JobId, Standing) {
        let ended = ended.map(Time::from_micros);
        let standing =
            Standing { id: id(number), attempt: 2, is_placed: ended.is_none(), ended, is_hidden: number == 3 };
        (id(number), standing)
    }

    fn told(known: &[KnownJob], standings: impl IntoIterator<Item = (JobId, Standing)>) -> Vec<(JobId, Errand)> {
        let ids: Vec<JobId> = known.iter().map(|known| known.job.parse().unwrap()).collect();
        let errands = errands(&ids, known, &standings.into_iter().collect());
        errands.into_iter().map(|(id, errand)| (id.clone(), errand)).collect()
    }

    #[test]
    fn what_no_row_needs_goes() {
        let known = [
            known(0, &[], false),
            known(1, &[1, 2], true),
            known(2, &[2], true),
            known(3, &[2], true),
            known(4, &[2], false),
            known(5, &[], false),
        ];
        let standings =
            [standing(1, None), standing(2, Some(1)), standing(3, Some(1)), standing(4, Some(1)), standing(5, Some(1))];
        let expected = [
            (id(0), Errand::Forget),
            (id(1), Errand::Dismiss(1)),
            (id(2), Errand::Stop(2)),
            (id(4), Errand::Dismiss(2)),
        ];
        assert_eq!(told(&known, standings), expected);
    }

    #[test]
    fn a_crowded_node_forgets_what_ended_longest_ago() {
        let count = CROWDED + 2;
        let mut all: Vec<KnownJob> = (10..10 + count).map(|number| known(number, &[], false)).collect();
        let standings = |all: usize| (10..10 + all).map(|number| standing(number, Some(-(number as i64))));
        let oldest = [(id(9 + count), Errand::Forget), (id(8 + count), Errand::Forget)];
        assert_eq!(told(&all, standings(count)), oldest);
        // What nobody knows makes room, too, and what is not written down stays.
        assert_eq!(told(&all, standings(count - 1)), [oldest[0].clone(), oldest[1].clone()]);
        all[count - 1].attempts = vec![2];
        assert_eq!(
            told(&all, standings(count)),
            [(id(9 + count), Errand::Dismiss(2)), oldest[1].clone(), (id(7 + count), Errand::Forget)]
        );
        assert!(told(&all[..CROWDED - 1], standings(count)).is_empty());
    }
}
