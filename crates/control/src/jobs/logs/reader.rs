//! Reading what jobs wrote: a part of it, or all of it from the first byte on for as long as they run.
//!
//! A thousand may follow the same job: what comes is taken from the tail in memory, and the database is asked only for what is
//! not there, when the state of the job may have changed, and now and then because another replica may drive the job.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tarn_model::ids::JobId;
use tarn_model::jobs::State;
use tarn_store::job_logs::{self, Piece};
use tarn_store::jobs;
use tokio::sync::watch;
use tokio::time::Instant;

use super::live::{LiveLog, Seen};
use super::shelf;
use crate::operations::jobs::{self as operations, JobView};
use crate::{Caller, Control, Error, Result};

/// How much of a log is read by one call at most.
pub const MAX_PART: u64 = 8 << 20;

/// How much a follower gets at a time at most.
const PIECE: u64 = 256 << 10;

/// How long until a follower looks by himself, where others change the database unseen.
const LOOK_SHARED: Duration = Duration::from_millis(500);

/// How long it is where nobody does.
const LOOK_ALONE: Duration = Duration::from_secs(5);

/// For how long a look is good for all followers of a job, if nothing rings.
const FRESH: Duration = Duration::from_millis(100);

/// So many rows are read at a time. Each may be as large as a megabyte, or as small as a line.
const FEW_ROWS: u32 = 8;
const MANY_ROWS: u32 = 512;

/// Rows that are together smaller than this are small.
const SMALL_ROWS: u64 = 64 << 10;

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// Where it begins.
    pub start: u64,
    /// What the job wrote from there on.
    pub data: Bytes,
    /// How much the job has written so far.
    pub total: u64,
    /// Whether that is all there will ever be.
    pub ended: bool,
}

/// Reads a log from `offset` on, at most `limit` bytes of it and never more than [`MAX_PART`].
pub async fn read(control: &Control, caller: &Caller, job: &str, offset: u64, limit: u64) -> Result<LogPart> {
    let job = control.store().read(|tx| operations::find(tx, caller, job)).await?;
    let limit = limit.min(MAX_PART).min(job.log_bytes.saturating_sub(offset));
    let data = collect(control, &job.id, offset, limit).await?;
    Ok(LogPart { start: offset, data, total: job.log_bytes, ended: matches!(job.state, State::Ended(_)) })
}

/// Waits until a log has more than `offset` bytes or has ended, and not longer than `patience`.
pub async fn wait(control: &Control, caller: &Caller, job: &str, offset: u64, patience: Duration) -> Result<()> {
    let mut follower = follow_from(control, caller, job, offset).await?;
    match tokio::time::timeout(patience, follower.next()).await {
        Ok(followed) => followed.map(drop),
        Err(_elapsed) => Ok(()),
    }
}

/// Follows a log from its first byte on.
pub async fn follow(control: &Control, caller: &Caller, job: &str) -> Result<Follower> {
    follow_from(control, caller, job, 0).await
}

async fn follow_from(control: &Control, caller: &Caller, job: &str, offset: u64) -> Result<Follower> {
    let job = control.store().read(|tx| operations::find(tx, caller, job)).await?;
    let live = control.live_logs().of(&job.id);
    let changes = live.changes();
    Ok(Follower { control: control.clone(), job: job.id, live, changes, offset, touches: None, look: Instant::now() })
}

/// Somebody who reads all of a log.
pub struct Follower {
    control: Control,
    job: JobId,
    live: Arc<LiveLog>,
    changes: watch::Receiver<u64>,
    /// How much he has got.
    offset: u64,
    /// Which change of the job's state he has looked at.
    touches: Option<u64>,
    /// When he looks next, whatever happens.
    look: Instant,
}

/// What a follower gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// What the job wrote next, at most 256 KiB.
    Data(Bytes),
    /// That was all: the job has ended.
    Ended(Box<JobView>),
}

impl Follower {
    /// Waits for what comes next. Dropped before it is ready, it loses nothing.
    pub async fn next(&mut self) -> Result<Followed> {
        loop {
            // In this order no change goes unnoticed: one that comes after the look at the tail rings again.
            self.changes.borrow_and_update();
            let touches = self.live.touches();
            if let Some(data) = self.live.from(self.offset) {
                return Ok(self.advance(data.slice(..data.len().min(PIECE as usize))));
            }
            let at_the_end = self.live.end() == Some(self.offset);
            if (!at_the_end || self.touches != Some(touches) || Instant::now() >= self.look)
                && let Some(followed) = self.look(touches).await?
            {
                return Ok(followed);
            }
            // A ring or the time: both lead to another look, and that nothing rings any more cannot be.
            let _ = tokio::time::timeout_at(self.look, self.changes.changed()).await;
        }
    }

    /// Looks into the database.
    async fn look(&mut self, touches: u64) -> Result<Option<Followed>> {
        let (total, ended) = self.progress().await?.ok_or_else(|| Error::not_found("job", self.job.as_str()))?;
        if total > self.offset {
            let data = collect(&self.control, &self.job, self.offset, PIECE.min(total - self.offset)).await?;
            return Ok(Some(self.advance(data)));
        }
        if ended {
            let view = operations::view_of(&self.control, &self.job).await?;
            return Ok(Some(Followed::Ended(Box::new(view))));
        }
        let alone = self.control.store().generation().is_some();
        self.touches = Some(touches);
        self.look = Instant::now() + if alone { LOOK_ALONE } else { LOOK_SHARED };
        Ok(None)
    }

    /// How long the log is and whether the job has ended. Of those who want to know it at the same time one looks.
    async fn progress(&self) -> Result<Option<(u64, bool)>> {
        let mut seen = self.live.seen().await;
        let changes = *self.changes.borrow();
        if let Some(seen) = &*seen
            && seen.changes == changes
            && seen.at.elapsed() < FRESH
        {
            return Ok(seen.progress);
        }
        let at = Instant::now();
        let progress = self.control.store().read(|tx| jobs::progress(tx, &self.job)).await.map_err(Error::from)?;
        *seen = Some(Seen { at, changes, progress });
        Ok(progress)
    }

    fn advance(&mut self, data: Bytes) -> Followed {
        self.offset += data.len() as u64;
        Followed::Data(data)
    }
}

/// Bytes of a log, which has so many.
async fn collect(control: &Control, job: &JobId, offset: u64, limit: u64) -> Result<Bytes> {
    let (mut data, mut rows) = (BytesMut::new(), FEW_ROWS);
    while (data.len() as u64) < limit {
        let at = offset + data.len() as u64;
        let pieces = control.store().read(|tx| job_logs::from(tx, job, at, rows)).await.map_err(Error::from)?;
        let read: u64 = pieces.iter().map(|piece| piece.length).sum();
        for piece in pieces {
            append(control, job, piece, offset, limit, &mut data).await?;
        }
        if offset + data.len() as u64 == at {
            return Err(Error::internal(std::io::Error::other(format!("the log of job {job} has no byte {at}"))));
        }
        rows = if read < SMALL_ROWS { MANY_ROWS } else { FEW_ROWS };
    }
    Ok(data.freeze())
}

/// Adds what is wanted of a piece.
async fn append(
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
        None => data.extend_from_slice(&shelf::read_log(control, job, piece.start, from..to).await?),
    }
    Ok(())
}
