//! Reading logs: a part of a log, or all of it from the first byte until the job ends.
//!
//! Many callers may follow the same job. New output comes from the tail in memory. The database is read only for older
//! output, when the state of the job may have changed, and at an interval because another replica may run the job.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tarn_model::ids::JobId;
use tarn_model::jobs::State;
use tarn_store::job_logs::{self, Piece};
use tarn_store::jobs;
use tokio::sync::watch;
use tokio::time::Instant;

use super::live_logs::{LiveLog, ProgressRead};
use super::recent_blocks::BLOCK_BYTES;
use crate::jobs::files::job_files;
use crate::operations::jobs::{self as operations, JobView};
use crate::{Caller, Control, Error, Result};

/// How many bytes of a log one call reads at most.
pub const MAX_PART: u64 = 8 << 20;

/// How many bytes a follower receives at a time at most. So much is kept, a few times over, for a client that does not
/// read.
pub const PIECE: u64 = 16 << 10;

/// How often a follower reads the database, where other replicas may change it.
const POLL_INTERVAL_SHARED: Duration = Duration::from_millis(500);

/// How often a follower reads the database, where only this engine changes it.
const POLL_INTERVAL_ALONE: Duration = Duration::from_secs(5);

/// How long a read of the progress is valid for all followers of a job, if nothing is notified.
const PROGRESS_MAX_AGE: Duration = Duration::from_millis(100);

/// How many rows are read at a time. A row may be as large as a megabyte, or as small as a line.
const FEW_ROWS: u32 = 8;
const MANY_ROWS: u32 = 512;

/// Below this size a page of rows is small, and the next page has more rows.
const SMALL_ROWS: u64 = 64 << 10;

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    pub start: u64,
    /// The output from `start` on.
    pub data: Bytes,
    /// How many bytes the job has written so far.
    pub total: u64,
    /// Whether the job has ended, so that the log does not grow any more.
    pub ended: bool,
}

/// Reads a log from `offset` on, at most `limit` bytes and never more than [`MAX_PART`].
pub async fn read(control: &Control, caller: &Caller, job: &str, offset: u64, limit: u64) -> Result<LogPart> {
    let read = control.store().read(|tx| {
        // A long log is read in many parts, and access may end between them.
        caller.must_still_hold(tx)?;
        operations::find_job(tx, caller, job)
    });
    let job = read.await?;
    let limit = limit.min(MAX_PART).min(job.log_bytes.saturating_sub(offset));
    let data = read_block(control, &job.id, offset, limit, job.log_bytes).await?;
    Ok(LogPart { start: offset, data, total: job.log_bytes, ended: matches!(job.state, State::Ended(_)) })
}

/// Waits until a log has more than `offset` bytes or its job has ended, at most for `timeout` and as long as the caller
/// has access.
pub async fn wait(control: &Control, caller: &Caller, job: &str, offset: u64, timeout: Duration) -> Result<()> {
    let held = control.hold_access(caller);
    let mut follower = follow_from(control, caller, job, offset).await?;
    match tokio::time::timeout(timeout, held.run(follower.next())).await {
        Ok(followed) => followed?.map(drop),
        Err(_elapsed) => Ok(()),
    }
}

/// Follows a log from its first byte on.
pub async fn follow(control: &Control, caller: &Caller, job: &str) -> Result<Follower> {
    follow_from(control, caller, job, 0).await
}

async fn follow_from(control: &Control, caller: &Caller, job: &str, offset: u64) -> Result<Follower> {
    let job = control.store().read(|tx| operations::find_job(tx, caller, job)).await?;
    let live = control.memory.live_logs.open_log(&job.id);
    let changes = live.subscribe();
    Ok(Follower {
        control: control.clone(),
        job: job.id,
        live,
        changes,
        offset,
        state_changes: None,
        next_poll: Instant::now(),
    })
}

/// A reader of a whole log.
pub struct Follower {
    control: Control,
    job: JobId,
    live: Arc<LiveLog>,
    changes: watch::Receiver<u64>,
    /// How many bytes it has returned.
    offset: u64,
    /// The state change at which it last read the database.
    state_changes: Option<u64>,
    /// When it reads the database at the latest.
    next_poll: Instant,
}

/// What a follower receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The next output, at most [`PIECE`] bytes. It may be a part of a larger block, which it keeps in memory.
    Data(Bytes),
    /// The job has ended, and all output was returned.
    Ended(Box<JobView>),
}

impl Follower {
    /// Waits for the next output or the end. It is safe to drop the future before it completes.
    pub async fn next(&mut self) -> Result<Followed> {
        loop {
            // In this order no change is missed: a change after the read of the tail is notified again.
            self.changes.borrow_and_update();
            let state_changes = self.live.state_changes();
            if let Some(data) = self.live.read_from(self.offset) {
                return Ok(self.return_data(data.slice(..data.len().min(PIECE as usize))));
            }
            let at_the_end = self.live.end_offset() == Some(self.offset);
            if (!at_the_end || self.state_changes != Some(state_changes) || Instant::now() >= self.next_poll)
                && let Some(followed) = self.poll_database(state_changes).await?
            {
                return Ok(followed);
            }
            // A notification and the timeout both lead to another poll; the sender cannot be closed.
            let _ = tokio::time::timeout_at(self.next_poll, self.changes.changed()).await;
        }
    }

    /// Reads the database for new output or the end of the job.
    async fn poll_database(&mut self, state_changes: u64) -> Result<Option<Followed>> {
        let (total, ended) = self.read_progress().await?.ok_or_else(|| Error::not_found("job", self.job.as_str()))?;
        if total > self.offset {
            // One of several followers at the same place reads for all.
            let reading = self.live.lock_block().await;
            let data = read_block(&self.control, &self.job, self.offset, PIECE.min(total - self.offset), total).await?;
            drop(reading);
            return Ok(Some(self.return_data(data)));
        }
        if ended {
            let view = operations::read_job_view(&self.control, &self.job).await?;
            return Ok(Some(Followed::Ended(Box::new(view))));
        }
        let alone = self.control.store().generation().is_some();
        self.state_changes = Some(state_changes);
        self.next_poll = Instant::now() + if alone { POLL_INTERVAL_ALONE } else { POLL_INTERVAL_SHARED };
        Ok(None)
    }

    /// Returns the length of the log and whether the job has ended. One of several concurrent followers reads for all.
    async fn read_progress(&self) -> Result<Option<(u64, bool)>> {
        let mut progress_read = self.live.lock_progress().await;
        let changes = *self.changes.borrow();
        if let Some(progress_read) = &*progress_read
            && progress_read.changes == changes
            && progress_read.at.elapsed() < PROGRESS_MAX_AGE
        {
            return Ok(progress_read.progress);
        }
        let at = Instant::now();
        let progress = self.control.store().read(|tx| jobs::progress(tx, &self.job)).await.map_err(Error::from)?;
        *progress_read = Some(ProgressRead { at, changes, progress });
        Ok(progress)
    }

    /// Takes output back that was returned last: it is returned again.
    pub fn return_again(&mut self, data: &Bytes) {
        self.offset -= data.len() as u64;
    }

    fn return_data(&mut self, data: Bytes) -> Followed {
        self.offset += data.len() as u64;
        Followed::Data(data)
    }
}

/// Reads `limit` bytes of a log that has them; `total` is its length. Small pieces come from larger blocks, which are
/// kept for a while.
async fn read_block(control: &Control, job: &JobId, offset: u64, limit: u64, total: u64) -> Result<Bytes> {
    if limit >= BLOCK_BYTES {
        return read_bytes(control, job, offset, limit).await;
    }
    let blocks = &control.memory.recent_blocks;
    if let Some(data) = blocks.find(job, offset, limit) {
        return Ok(data);
    }
    let block = read_bytes(control, job, offset, BLOCK_BYTES.min(total.saturating_sub(offset)).max(limit)).await?;
    let data = block.slice(..limit as usize);
    if block.len() > data.len() {
        blocks.insert(job, offset, block);
    }
    Ok(data)
}

/// Reads bytes of a log that is long enough.
async fn read_bytes(control: &Control, job: &JobId, offset: u64, limit: u64) -> Result<Bytes> {
    let (mut data, mut rows) = (BytesMut::new(), FEW_ROWS);
    while (data.len() as u64) < limit {
        let at = offset + data.len() as u64;
        let pieces = control.store().read(|tx| job_logs::from(tx, job, at, rows)).await.map_err(Error::from)?;
        let read: u64 = pieces.iter().map(|piece| piece.length).sum();
        for piece in pieces {
            append_wanted_bytes(control, job, piece, offset, limit, &mut data).await?;
        }
        if offset + data.len() as u64 == at {
            return Err(Error::internal(std::io::Error::other(format!("the log of job {job} has no byte {at}"))));
        }
        rows = if read < SMALL_ROWS { MANY_ROWS } else { FEW_ROWS };
    }
    Ok(data.freeze())
}

/// Appends the wanted bytes of a piece.
async fn append_wanted_bytes(
    control: &Control,
    job: &JobId,
    piece: Piece,
    offset: u64,
    limit: u64,
    data: &mut BytesMut,
) -> Result<()> {
    let at = offset + data.len() as u64;
    let Some(from) = at.checked_sub(piece.start).filter(|from| *from < piece.length) else { return Ok(()) };
    let to = piece.length.min(from + limit - data.len() as u64);
    match piece.data {
        Some(inline) => data.extend_from_slice(inline.get(from as usize..to as usize).unwrap_or_default()),
        None => data.extend_from_slice(&job_files::read_log(control, job, piece.start, from..to).await?),
    }
    Ok(())
}
