//! The rows of a log become objects: now and then while it grows, so that they do not become too many, and all of them when the
//! job has ended.

use std::ops::Range;

use bytes::BytesMut;
use tarn_model::ids::JobId;
use tarn_store::{Tx, job_logs};

use super::append::Lease;
use super::hand::{Hand, patiently};
use super::shelf;
use crate::{Error, Result};

/// So many rows, or so many bytes in rows, become an object while the log grows.
const MANY_ROWS: u32 = 1_000;
const MANY_BYTES: u64 = 4 << 20;

/// How many rows are read at a time.
const PAGE: u32 = 256;

/// The rows that this driver has added at the end of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    start: u64,
    rows: u32,
}

impl Tail {
    /// No rows yet, after so many bytes.
    pub(super) fn at(end: u64) -> Self {
        Tail { start: end, rows: 0 }
    }

    /// The log has grown to this length, by a row or by an object.
    pub(super) fn grew(&mut self, is_object: bool, end: u64) {
        match is_object {
            true => *self = Tail::at(end),
            false => self.rows += 1,
        }
    }

    /// The bytes that should become an object now, if there are enough of them. It begins anew with what follows.
    pub(super) fn take_if_long(&mut self, end: u64) -> Option<Range<u64>> {
        let is_long = self.rows >= MANY_ROWS || (self.rows > 0 && end - self.start >= MANY_BYTES);
        is_long.then(|| std::mem::replace(self, Tail::at(end)).start..end)
    }
}

/// Whether a log of this length can become an object in the transaction that ends the job.
pub(super) fn is_small(log_bytes: u64) -> bool {
    log_bytes <= shelf::SMALL_LOG as u64
}

/// Makes objects of all rows of a small log in the transaction that ends the job. Of many short lines some may be one already.
pub(super) fn merge_small(tx: &mut Tx<'_>, job: &JobId) -> Result<()> {
    let mut run: Option<(u64, Vec<u8>)> = None;
    for piece in job_logs::from(tx, job, 0, u32::MAX)? {
        match (piece.data, &mut run) {
            (Some(data), Some((_, rows))) => rows.extend(data),
            (Some(data), none) => *none = Some((piece.start, data)),
            (None, _) => shelve(tx, job, run.take())?,
        }
    }
    shelve(tx, job, run)
}

fn shelve(tx: &mut Tx<'_>, job: &JobId, run: Option<(u64, Vec<u8>)>) -> Result<()> {
    let Some((start, data)) = run else { return Ok(()) };
    shelf::put_small_log(tx, job, start, &data)?;
    Ok(job_logs::merge(tx, job, start, data.len() as u64)?)
}

/// Makes objects of all rows of a log that does not grow any more.
pub(super) async fn merge_all(hand: &Hand) -> Result<()> {
    let (lease, id) = (hand.lease(), &hand.job.id);
    let read = || async { Ok(hand.control.store().read(|tx| job_logs::inline(tx, id)).await?) };
    let rows: Vec<(u64, u64)> = patiently("its log", read).await?;
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (start, length) in rows {
        match runs.last_mut() {
            Some(run) if run.end == start && run.end - run.start < MANY_BYTES => run.end += length,
            _ => runs.push(start..start + length),
        }
    }
    for run in runs {
        merge(&lease, run).await?;
    }
    Ok(())
}

/// Makes one object of the rows that hold these bytes.
pub(super) async fn merge(lease: &Lease, run: Range<u64>) -> Result<()> {
    let (start, length) = (run.start, run.end - run.start);
    let mut data = BytesMut::with_capacity(usize::try_from(length).unwrap_or(0));
    while (data.len() as u64) < length {
        let at = start + data.len() as u64;
        let read = || async { Ok(lease.control.store().read(|tx| job_logs::from(tx, &lease.id, at, PAGE)).await?) };
        let pieces: Vec<job_logs::Piece> = patiently("its log", read).await?;
        let before = data.len();
        for piece in pieces.into_iter().filter(|piece| piece.start >= at && piece.start < run.end) {
            data.extend_from_slice(&piece.data.ok_or_else(|| torn(&lease.id))?);
        }
        if data.len() == before {
            return Err(torn(&lease.id));
        }
    }
    let (data, held) = (data.freeze(), lease.clone());
    let also = move |tx: &mut Tx<'_>| -> Result<()> {
        tarn_store::jobs::leased(tx, &held.id, held.epoch)?;
        Ok(job_logs::merge(tx, &held.id, start, length)?)
    };
    let put = || shelf::put_log(&lease.control, &lease.id, start, data.clone(), also.clone());
    patiently("a piece of its log", put).await
}

fn torn(job: &JobId) -> Error {
    Error::internal(std::io::Error::other(format!("the log of job {job} has a gap")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_become_an_object() {
        let mut tail = Tail::at(100);
        assert_eq!(tail.take_if_long(100 + (8 << 20)), None, "objects before it are none of its rows");
        tail.grew(false, 200);
        assert_eq!(tail.take_if_long(200), None);
        assert_eq!(tail.take_if_long(100 + MANY_BYTES), Some(100..100 + MANY_BYTES));
        for _ in 0..MANY_ROWS {
            tail.grew(false, 0);
        }
        assert!(tail.take_if_long(200 + MANY_BYTES).is_some());
        tail.grew(false, 300 + MANY_BYTES);
        tail.grew(true, 9 << 20);
        assert_eq!(tail.take_if_long(9 << 20), None, "an object begins it anew");
    }
}
