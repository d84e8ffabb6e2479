//! Storing the log: a piece of it, the offset of each node's output, and the length of the log, in one transaction.
//! Only stored output is shown to followers and acknowledged to the guests.

use std::sync::Arc;

use bytes::Bytes;
use tarn_model::events::{Event, JobEvent};
use tarn_model::ids::JobId;
use tarn_model::jobs::{Job, JobNode, State};
use tarn_store::{Tx, job_logs, job_nodes, jobs};

use super::log_buffer::{LARGE_PIECE, LogBatch};
use crate::jobs::files::{job_files, job_space};
use crate::jobs::queue::job_note;
use crate::jobs::queue::leased_job::{LeasedJob, retry_while_unavailable, retry_write};
use crate::{Control, Result};

/// A piece of the log that is ready to be stored.
#[derive(Clone)]
pub(in crate::jobs) struct LogPiece {
    pub(in crate::jobs) start: u64,
    /// The bytes that are kept.
    pub(in crate::jobs) data: Bytes,
    /// Whether it is stored as an object; smaller pieces are rows.
    pub(in crate::jobs) is_object: bool,
    /// Whether this is the first piece of which bytes are cut off.
    pub(in crate::jobs) is_first_cut: bool,
    /// Whether they are cut off because all jobs of the owner together have reached their limit.
    pub(in crate::jobs) is_over_quota: bool,
    /// Whether the log was cut off before this piece.
    pub(in crate::jobs) was_cut: bool,
    /// The nodes whose output advances, with their new offsets.
    pub(in crate::jobs) advanced: Arc<Vec<JobNode>>,
}

/// What a transaction needs to prove that its task holds the lease.
#[derive(Clone)]
pub(in crate::jobs) struct JobLease {
    pub(in crate::jobs) control: Control,
    pub(in crate::jobs) id: JobId,
    pub(in crate::jobs) epoch: i64,
}

impl LeasedJob {
    /// Returns the lease, to be moved into a transaction.
    pub(in crate::jobs) fn lease(&self) -> JobLease {
        JobLease { control: self.control.clone(), id: self.job.id.clone(), epoch: self.epoch }
    }

    /// Makes a piece of a batch, cut off where the log has reached its limit. The offsets include the bytes that are
    /// cut off.
    pub(in crate::jobs) fn log_piece(&self, batch: &LogBatch) -> LogPiece {
        let room = self.control.settings().jobs.max_log_bytes.saturating_sub(self.job.log_bytes);
        // A log has no gaps: once it is cut off, nothing follows, even if there is room again.
        let was_cut = job_note::has_truncation_note(&self.job);
        let room = if was_cut { 0 } else { room };
        let kept = usize::try_from(room).map_or(batch.data.len(), |room| room.min(batch.data.len()));
        let advance = |(node, offset): (&JobNode, &u64)| {
            (node.log_offset != *offset).then(|| JobNode { log_offset: *offset, ..node.clone() })
        };
        let advanced = self.nodes.iter().zip(&batch.offsets).filter_map(advance).collect();
        let (start, data) = (self.job.log_bytes, batch.data.slice(..kept));
        let (is_object, is_first_cut) = (data.len() >= LARGE_PIECE, kept < batch.data.len() && !was_cut);
        LogPiece { start, is_object, is_first_cut, is_over_quota: false, was_cut, data, advanced: Arc::new(advanced) }
    }

    /// Updates the job after a piece was stored, and shows the piece to followers.
    pub(in crate::jobs) fn record_written(&mut self, piece: LogPiece) {
        self.job.log_bytes = piece.start + piece.data.len() as u64;
        for advanced in piece.advanced.iter() {
            if let Some(node) = self.nodes.iter_mut().find(|node| node.node == advanced.node) {
                node.log_offset = advanced.log_offset;
            }
        }
        if !piece.data.is_empty() {
            self.tail.record_append(piece.is_object, self.job.log_bytes);
            self.live.append_output(piece.start, piece.data);
        }
    }
}

impl LogPiece {
    /// Returns the piece without its bytes, for which the limit of the owner leaves no room.
    pub(in crate::jobs) fn cut_over_quota(&self) -> LogPiece {
        let cut = LogPiece { data: Bytes::new(), is_object: false, is_over_quota: true, ..self.clone() };
        LogPiece { is_first_cut: !self.was_cut, ..cut }
    }

    /// Runs the transaction that stores the piece, and repeats it while the database is unavailable. A large piece
    /// becomes an object in the same transaction: a task that has lost the lease must not replace an object that
    /// another task has stored.
    pub(in crate::jobs) async fn commit_with<T: Send + 'static>(
        &self,
        lease: &JobLease,
        what: &'static str,
        work: impl Fn(&mut Tx<'_>) -> Result<T> + Clone + Send + Sync + 'static,
    ) -> Result<T> {
        if !self.is_object {
            return retry_write(&lease.control, what, work).await;
        }
        let put = || job_files::put_log(&lease.control, &lease.id, self.start, self.data.clone(), work.clone());
        retry_while_unavailable(what, put).await
    }

    /// Stores the piece in a transaction. Fails unless the lease is held.
    pub(in crate::jobs) fn insert_into(&self, tx: &mut Tx<'_>, lease: &JobLease) -> Result<()> {
        let (id, length) = (&lease.id, self.data.len() as u64);
        if length > 0 {
            job_logs::insert(tx, id, self.start, length, (!self.is_object).then_some(&self.data))?;
            job_space::require_room(tx, &lease.control, id, length)?;
        }
        for node in self.advanced.iter() {
            job_nodes::advance(tx, node)?;
        }
        if !self.advanced.is_empty() {
            let lease_duration = lease.control.settings().lease;
            jobs::set_log_bytes(tx, id, lease.epoch, self.start + length, lease_duration)?;
        }
        Ok(())
    }
}

/// Stores a piece, and moves the job to RUNNING if its commands have started. Returns the job if it has changed. A
/// piece for which the limit of the owner leaves no room is cut off.
pub(in crate::jobs) async fn write_piece(
    lease: JobLease,
    piece: LogPiece,
    has_begun: bool,
) -> Result<(LogPiece, Option<Job>)> {
    match try_write_piece(&lease, piece.clone(), has_begun).await {
        Err(error) if job_space::is_limit_reached(&error) => {
            try_write_piece(&lease, piece.cut_over_quota(), has_begun).await
        }
        written => written,
    }
}

async fn try_write_piece(lease: &JobLease, piece: LogPiece, has_begun: bool) -> Result<(LogPiece, Option<Job>)> {
    let (held, written) = (lease.clone(), piece.clone());
    let work = move |tx: &mut Tx<'_>| -> Result<Option<Job>> {
        written.insert_into(tx, &held)?;
        if has_begun || written.is_first_cut { update_job(tx, &held, has_begun, &written).map(Some) } else { Ok(None) }
    };
    let job = piece.commit_with(lease, "its log", work).await?;
    Ok((piece, job))
}

/// Moves a job to RUNNING unless it is being stopped, and notes that its log is truncated.
fn update_job(tx: &mut Tx<'_>, lease: &JobLease, has_begun: bool, piece: &LogPiece) -> Result<Job> {
    let is_cut = piece.is_first_cut;
    let (mut job, now) = (jobs::leased(tx, &lease.id, lease.epoch)?, tx.now());
    let begins = has_begun && job.state == State::Starting;
    if begins {
        job = job.moved(now, State::run)?;
        let started = JobEvent::Started { cluster: job.cluster.clone(), attempt: job.attempt };
        tx.record(job.owner.scope(), Event::Job(job.id.clone(), started))?;
    }
    if is_cut {
        job_note::add_truncation_note(&mut job, piece.is_over_quota);
    }
    if begins || is_cut {
        jobs::save(tx, &job)?;
        job.version += 1;
    }
    Ok(job)
}
