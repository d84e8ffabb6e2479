//! Receiving the files of a job: one archive, once, checked while it comes. Either all of it is kept and the job has its files, or
//! nothing of it is.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tarn_model::Refused;
use tarn_model::ids::JobId;
use tarn_model::jobs::{Job, State};
use tarn_model::users::Owner;
use tarn_store::{Tx, jobs};
use tokio::time::Instant;

use super::archive::{Limits, Streamed};
use super::shelf;
use crate::{Control, Error, Result};

/// How slowly an archive may come on the whole, in bytes per second, and how long nobody asks.
const SLOWEST: u64 = 16 << 10;
const FIRST_PATIENCE: Duration = Duration::from_secs(60);

/// Receives the archive of a job that waits for it, and says how large it is. When this is dropped before its end, nothing of
/// the archive is left.
pub async fn receive(
    control: &Control,
    job: &JobId,
    declared: Option<u64>,
    mut body: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
) -> Result<u64> {
    let settings = &control.settings().jobs;
    let limit = settings.max_upload_bytes;
    if declared.is_some_and(|declared| declared > limit) {
        return Err(too_large(limit));
    }
    let mut stay = Stay::begin(control, job).await?;
    let _turn = control.upload_turns().wait(stay.owner.scope()).await?;
    let mut intake = shelf::put_files(control, job, declared).await?;
    let limits = Limits { files: settings.max_files, unpacked_bytes: settings.max_unpacked_bytes };
    let (mut archive, mut size, mut pace) = (Streamed::new(limits), 0_u64, Pace::default());
    while let Some(piece) = pace.within(size, body.next()).await.ok_or_else(|| too_slow(job))? {
        let piece = piece.map_err(|error| broken(job, &error))?;
        size += piece.len() as u64;
        if size > limit {
            return Err(too_large(limit));
        }
        if declared.is_some_and(|declared| size > declared) {
            return Err(broken(job, &"more bytes came than were declared"));
        }
        archive.push(piece.clone()).await?;
        intake.push(piece).await?;
        stay.on(control, job).await?;
    }
    if declared.is_some_and(|declared| size < declared) {
        return Err(broken(job, &"fewer bytes came than were declared"));
    }
    archive.finish().await?;
    let of = job.clone();
    intake.finish_with(move |tx| arrived(tx, &of, size)).await?;
    Ok(size)
}

/// How long somebody who sends has let us wait. Others wait for his turn to end.
#[derive(Default)]
struct Pace {
    waited: Duration,
}

impl Pace {
    /// Waits for what comes after so many bytes; `None` when they come too slowly.
    async fn within<T>(&mut self, size: u64, next: impl Future<Output = T>) -> Option<T> {
        let begun = Instant::now();
        let came = tokio::time::timeout(self.left(size), next).await.ok();
        self.waited += begun.elapsed();
        came
    }

    /// How long it may take until more comes than so many bytes.
    fn left(&self, size: u64) -> Duration {
        FIRST_PATIENCE.max(Duration::from_secs(size / SLOWEST)).saturating_sub(self.waited)
    }
}

/// Keeps a draft from being forgotten while its files come.
struct Stay {
    /// Whose it is.
    owner: Owner,
    /// When it has to be said again that somebody is at it.
    next: Instant,
}

impl Stay {
    async fn begin(control: &Control, job: &JobId) -> Result<Self> {
        let of = job.clone();
        let write = control.store().write(move |tx| -> Result<Owner> {
            let job = waiting(tx, &of)?;
            jobs::refresh_draft(tx, &of)?;
            Ok(job.owner)
        });
        Ok(Stay { owner: write.await?, next: Instant::now() + control.settings().jobs.draft_timeout / 4 })
    }

    async fn on(&mut self, control: &Control, job: &JobId) -> Result<()> {
        if Instant::now() >= self.next {
            *self = Self::begin(control, job).await?;
        }
        Ok(())
    }
}

/// Writes down that the files are there.
fn arrived(tx: &mut Tx<'_>, id: &JobId, size: u64) -> Result<()> {
    let mut job = waiting(tx, id)?;
    job.archive_bytes = Some(size);
    job.since = tx.now();
    Ok(jobs::save(tx, &job)?)
}

/// The job, if it waits for its files.
fn waiting(tx: &mut Tx<'_>, id: &JobId) -> Result<Job> {
    let job = jobs::get(tx, id)?.ok_or_else(|| Error::not_found("job", id.as_str()))?;
    match (&job.state, job.archive_bytes) {
        (State::Draft, None) => Ok(job),
        (State::Draft, Some(0)) => {
            Err(Error::conflict("already_uploaded", format!("job {id} was made without files; create another one")))
        }
        (State::Draft, Some(_)) => {
            let message = format!("job {id} has its files already; start it, or create another one");
            Err(Error::conflict("already_uploaded", message))
        }
        (State::Ended(outcome), _) => Err(Refused::JobEnded { job: id.to_string(), status: outcome.status() }.into()),
        _ => Err(Refused::JobStarted { job: id.to_string() }.into()),
    }
}

fn too_large(limit: u64) -> Error {
    let message = format!(
        "the archive of a job may have {limit} bytes, and this one is larger; leave out what the job does not need by `ignore`, \
         or put data onto a volume"
    );
    Error::invalid("archive_too_large", message)
}

fn too_slow(job: &JobId) -> Error {
    tracing::info!(%job, "an upload came too slowly");
    let message = format!(
        "the upload came more slowly than {} KiB per second, and nothing of it was kept; send it again, or less of it",
        SLOWEST >> 10
    );
    Error::invalid("upload_broken", message)
}

fn broken(job: &JobId, cause: &dyn std::fmt::Display) -> Error {
    tracing::info!(%job, %cause, "an upload broke off");
    Error::invalid("upload_broken", "the upload broke off before its end, and nothing of it was kept; send it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_sends_too_slowly_loses_his_turn() {
        let pace = |seconds| Pace { waited: Duration::from_secs(seconds) };
        assert_eq!(pace(59).left(0), Duration::from_secs(1), "in the first minute nobody asks");
        assert_eq!(pace(99).left(100 * SLOWEST), Duration::from_secs(1));
        let mut slow = pace(100);
        assert_eq!(slow.within(100 * SLOWEST, std::future::pending::<()>()).await, None);
        assert_eq!(slow.within(200 * SLOWEST, async { 7 }).await, Some(7));
    }
}
