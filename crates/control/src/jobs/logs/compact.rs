//! Merging the rows of a log into objects: from time to time while it grows, to limit their number, and all of them
//! when the job has ended.

use std::ops::Range;

use bytes::BytesMut;
use tarn_model::ids::JobId;
use tarn_store::{Tx, job_logs};

use super::append::JobLease;
use crate::jobs::files::job_files;
use crate::jobs::queue::leased_job::{LeasedJob, retry_while_unavailable};
use crate::{Error, Result};

/// From so many rows, or so many bytes in rows, they are merged into an object while the log grows.
const MAX_TAIL_ROWS: u32 = 1_000;
const MAX_TAIL_BYTES: u64 = 4 << 20;

/// How many rows are read at a time.
const PAGE: u32 = 256;

/// The rows that this task has added at the end of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::jobs) struct RowTail {
    start: u64,
    rows: u32,
}

impl RowTail {
    /// Returns an empty tail that begins at the given offset.
    pub(in crate::jobs) fn starting_at(end: u64) -> Self {
        RowTail { start: end, rows: 0 }
    }

    /// Records that the log has grown to the given length, by a row or by an object.
    pub(super) fn record_append(&mut self, is_object: bool, end: u64) {
        if is_object { *self = RowTail::starting_at(end) } else { self.rows += 1 }
    }

    /// Returns the range to merge into an object, if it is long enough, and starts an empty tail after it.
    pub(in crate::jobs) fn take_if_long(&mut self, end: u64) -> Option<Range<u64>> {
        let is_long = self.rows >= MAX_TAIL_ROWS || (self.rows > 0 && end - self.start >= MAX_TAIL_BYTES);
        is_long.then(|| std::mem::replace(self, RowTail::starting_at(end)).start..end)
    }
}

/// Returns whether a log of this length can become an object in the transaction that ends the job.
pub(in crate::jobs) fn is_small_log(log_bytes: u64) -> bool {
    log_bytes <= job_files::SMALL_LOG as u64
}

/// Merges all rows of a small log in the transaction that ends the job. Some of its pieces may be objects already.
pub(in crate::jobs) fn merge_small_log(tx: &mut Tx<'_>, job: &JobId) -> Result<()> {
    let mut run: Option<(u64, Vec<u8>)> = None;
    for piece in job_logs::from(tx, job, 0, u32::MAX)? {
        match (piece.data, &mut run) {
            (Some(data), Some((_, rows))) => rows.extend(data),
            (Some(data), none) => *none = Some((piece.start, data)),
            (None, _) => put_small_object(tx, job, run.take())?,
        }
    }
    put_small_object(tx, job, run)
}

fn put_small_object(tx: &mut Tx<'_>, job: &JobId, run: Option<(u64, Vec<u8>)>) -> Result<()> {
    let Some((start, data)) = run else { return Ok(()) };
    job_files::put_small_log(tx, job, start, &data)?;
    Ok(job_logs::merge(tx, job, start, data.len() as u64)?)
}

/// Merges all rows of a log that does not grow any more.
pub(in crate::jobs) async fn merge_all_rows(leased: &LeasedJob) -> Result<()> {
    let (lease, id) = (leased.lease(), &leased.job.id);
    let read = || async { Ok(leased.control.store().read(|tx| job_logs::inline(tx, id)).await?) };
    let rows: Vec<(u64, u64)> = retry_while_unavailable("its log", read).await?;
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (start, length) in rows {
        match runs.last_mut() {
            Some(run) if run.end == start && run.end - run.start < MAX_TAIL_BYTES => run.end += length,
            _ => runs.push(start..start + length),
        }
    }
    for run in runs {
        merge_rows(&lease, run).await?;
    }
    Ok(())
}

/// Merges the rows of a range into one object.
pub(in crate::jobs) async fn merge_rows(lease: &JobLease, run: Range<u64>) -> Result<()> {
    let (start, length) = (run.start, run.end - run.start);
    let mut data = BytesMut::with_capacity(usize::try_from(length).unwrap_or(0));
    while (data.len() as u64) < length {
        let at = start + data.len() as u64;
        let read = || async { Ok(lease.control.store().read(|tx| job_logs::from(tx, &lease.id, at, PAGE)).await?) };
        let pieces: Vec<job_logs::Piece> = retry_while_unavailable("its log", read).await?;
        let before = data.len();
        for piece in pieces.into_iter().filter(|piece| piece.start >= at && piece.start < run.end) {
            data.extend_from_slice(&piece.data.ok_or_else(|| gap_error(&lease.id))?);
        }
        if data.len() == before {
            return Err(gap_error(&lease.id));
        }
    }
    let (data, held) = (data.freeze(), lease.clone());
    let also = move |tx: &mut Tx<'_>| -> Result<()> {
        tarn_store::jobs::leased(tx, &held.id, held.epoch)?;
        Ok(job_logs::merge(tx, &held.id, start, length)?)
    };
    let put = || job_files::put_log(&lease.control, &lease.id, start, data.clone(), also.clone());
    retry_while_unavailable("a piece of its log", put).await
}

fn gap_error(job: &JobId) -> Error {
    Error::internal(std::io::Error::other(format!("the log of job {job} has a gap")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many rows, or many bytes in rows, are merged.
    #[test]
    fn many_rows_are_merged() {
        let mut tail = RowTail::starting_at(100);
        assert_eq!(tail.take_if_long(100 + (8 << 20)), None, "objects before it are none of its rows");
        tail.record_append(false, 200);
        assert_eq!(tail.take_if_long(200), None);
        assert_eq!(tail.take_if_long(100 + MAX_TAIL_BYTES), Some(100..100 + MAX_TAIL_BYTES));
        for _ in 0..MAX_TAIL_ROWS {
            tail.record_append(false, 0);
        }
        assert!(tail.take_if_long(200 + MAX_TAIL_BYTES).is_some());
        tail.record_append(false, 300 + MAX_TAIL_BYTES);
        tail.record_append(true, 9 << 20);
        assert_eq!(tail.take_if_long(9 << 20), None, "an object begins it anew");
    }
}
