//! Receiving the files of a job: one archive, once, checked while it arrives. Either the whole archive is stored and
//! the job has its files, or nothing is stored.

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

use super::archive::{ArchiveChecker, Limits};
use super::job_space::{self, Reservation};
use super::{job_files, signed};
use crate::{Caller, Control, Error, Kind, Result};

/// The slowest average rate of an upload, and the time during which no rate is required.
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;
const GRACE_TIME: Duration = Duration::from_secs(60);

/// Receives the archive of a draft and returns its size. It ends when the access of the caller ends. If the future is
/// dropped before it completes, nothing of the archive is left.
pub async fn receive(
    control: &Control,
    caller: &Caller,
    job: &JobId,
    declared: Option<u64>,
    body: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
) -> Result<u64> {
    let held = control.hold_access(caller);
    let received = held.run(receive_archive(control, caller, job, declared, body)).await.flatten();
    received.map_err(|error| if error.kind == Kind::Unauthenticated { signed::revoked_url() } else { error })
}

async fn receive_archive(
    control: &Control,
    caller: &Caller,
    job: &JobId,
    declared: Option<u64>,
    mut body: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
) -> Result<u64> {
    let settings = &control.settings().jobs;
    let limit = settings.max_upload_bytes;
    if declared.is_some_and(|declared| declared > limit) {
        return Err(archive_too_large(limit));
    }
    let mut keep_alive = DraftKeepAlive::refresh(control, caller, job).await?;
    let _permit = control.memory.upload_permits.acquire(keep_alive.owner.scope()).await?;
    let mut space = Reservation::new(control, job, declared, 0).await?;
    let mut intake = job_files::put_files(control, job, declared).await?;
    let limits = Limits { files: settings.max_files, unpacked_bytes: settings.max_unpacked_bytes };
    let (mut archive, mut size, mut pace) = (ArchiveChecker::new(limits), 0_u64, UploadPace::default());
    while let Some(piece) = pace.wait_for_piece(size, body.next()).await.ok_or_else(|| upload_too_slow(job))? {
        let piece = piece.map_err(|error| upload_broken(job, &error))?;
        size += piece.len() as u64;
        if size > limit {
            return Err(archive_too_large(limit));
        }
        if declared.is_some_and(|declared| size > declared) {
            return Err(upload_broken(job, &"more bytes arrived than were declared"));
        }
        space.add_arrived(piece.len() as u64).await?;
        archive.push(piece.clone()).await?;
        intake.push(piece).await?;
        keep_alive.refresh_if_due(control, caller, job).await?;
    }
    if declared.is_some_and(|declared| size < declared) {
        return Err(upload_broken(job, &"fewer bytes arrived than were declared"));
    }
    archive.finish().await?;
    let (owner, caller, id) = (control.clone(), caller.clone(), job.clone());
    let stored = intake.finish_with(move |tx| {
        caller.must_still_hold(tx)?;
        job_space::require_room(tx, &owner, &id, size)?;
        record_archive(tx, &id, size)
    });
    stored.await?;
    Ok(size)
}

/// How long the client has made the engine wait. Other uploads wait for its permit meanwhile.
#[derive(Default)]
struct UploadPace {
    waited: Duration,
}

impl UploadPace {
    /// Waits for the next piece after `size` bytes; `None` if the upload is too slow.
    async fn wait_for_piece<T>(&mut self, size: u64, next: impl Future<Output = T>) -> Option<T> {
        let waiting_since = Instant::now();
        let piece = tokio::time::timeout(self.time_left(size), next).await.ok();
        self.waited += waiting_since.elapsed();
        piece
    }

    /// Returns how long the next piece may take after `size` bytes.
    fn time_left(&self, size: u64) -> Duration {
        GRACE_TIME.max(Duration::from_secs(size / MIN_BYTES_PER_SECOND)).saturating_sub(self.waited)
    }
}

/// Prevents a draft from expiring while its files arrive.
struct DraftKeepAlive {
    owner: Owner,
    /// When the draft has to be refreshed.
    next: Instant,
}

impl DraftKeepAlive {
    async fn refresh(control: &Control, caller: &Caller, job: &JobId) -> Result<Self> {
        let (caller, id) = (caller.clone(), job.clone());
        let write = control.store().write(move |tx| -> Result<Owner> {
            caller.must_still_hold(tx)?;
            let job = find_waiting_draft(tx, &id)?;
            jobs::refresh_draft(tx, &id)?;
            Ok(job.owner)
        });
        Ok(DraftKeepAlive { owner: write.await?, next: Instant::now() + control.settings().jobs.draft_timeout / 4 })
    }

    async fn refresh_if_due(&mut self, control: &Control, caller: &Caller, job: &JobId) -> Result<()> {
        if Instant::now() >= self.next {
            *self = Self::refresh(control, caller, job).await?;
        }
        Ok(())
    }
}

/// Records that the files have arrived.
fn record_archive(tx: &mut Tx<'_>, id: &JobId, size: u64) -> Result<()> {
    let mut job = find_waiting_draft(tx, id)?;
    job.archive_bytes = Some(size);
    job.since = tx.now();
    Ok(jobs::save(tx, &job)?)
}

/// Returns the job, if it waits for its files.
fn find_waiting_draft(tx: &mut Tx<'_>, id: &JobId) -> Result<Job> {
    let job = jobs::get(tx, id)?.ok_or_else(|| Error::not_found("job", id.as_str()))?;
    match (&job.state, job.archive_bytes) {
        (State::Draft, None) => Ok(job),
        (State::Draft, Some(0)) => {
            Err(Error::conflict("already_uploaded", format!("job {id} was created without files; create another one")))
        }
        (State::Draft, Some(_)) => {
            let message = format!("job {id} has its files already; start it, or create another one");
            Err(Error::conflict("already_uploaded", message))
        }
        (State::Ended(outcome), _) => Err(Refused::JobEnded { job: id.to_string(), status: outcome.status() }.into()),
        _ => Err(Refused::JobStarted { job: id.to_string() }.into()),
    }
}

fn archive_too_large(limit: u64) -> Error {
    let message = format!(
        "the archive of a job may have at most {limit} bytes, and this one is larger; exclude what the job does not \
         need by `ignore`, or put data on a volume"
    );
    Error::invalid("archive_too_large", message)
}

fn upload_too_slow(job: &JobId) -> Error {
    tracing::info!(%job, "an upload was too slow");
    let message = format!(
        "the upload was slower than {} KiB per second and was discarded; send it again, or send less",
        MIN_BYTES_PER_SECOND >> 10
    );
    Error::invalid("upload_broken", message)
}

fn upload_broken(job: &JobId, cause: &dyn std::fmt::Display) -> Error {
    tracing::info!(%job, %cause, "an upload broke off");
    Error::invalid("upload_broken", "the upload broke off and was discarded; send it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upload that is too slow is ended.
    #[tokio::test]
    async fn slow_upload_is_ended() {
        let pace = |seconds| UploadPace { waited: Duration::from_secs(seconds) };
        assert_eq!(pace(59).time_left(0), Duration::from_secs(1), "no rate is required in the first minute");
        assert_eq!(pace(99).time_left(100 * MIN_BYTES_PER_SECOND), Duration::from_secs(1));
        let mut slow = pace(100);
        assert_eq!(slow.wait_for_piece(100 * MIN_BYTES_PER_SECOND, std::future::pending::<()>()).await, None);
        assert_eq!(slow.wait_for_piece(200 * MIN_BYTES_PER_SECOND, async { 7 }).await, Some(7));
    }
}
