//! Writing the log down: a piece of it, how far each node's output is known, and the length of the whole, in one transaction.
//! Only what is written down is shown to those who listen, and acknowledged to the guests.

use std::sync::Arc;

use bytes::Bytes;
use tarn_model::ids::JobId;
use tarn_model::jobs::{Job, JobNode, State};
use tarn_store::{Tx, events, job_logs, job_nodes, jobs};

use super::gathered::{Batch, LARGE};
use super::hand::{Hand, patiently};
use super::{notes, shelf};
use crate::{Control, Result};

/// A piece of the log that is ready to be written down.
#[derive(Clone)]
pub(super) struct Piece {
    /// Where in the log it begins.
    pub(super) start: u64,
    /// What is kept of it.
    pub(super) data: Bytes,
    /// Whether it becomes an object; smaller ones are rows.
    pub(super) is_object: bool,
    /// Whether something of it is cut off, and of nothing before it.
    pub(super) is_first_cut: bool,
    /// The nodes of which more is known, as they are afterwards.
    pub(super) moved: Arc<Vec<JobNode>>,
}

/// By what a transaction shows that it is of the one who drives the job.
#[derive(Clone)]
pub(super) struct Lease {
    pub(super) control: Control,
    pub(super) id: JobId,
    pub(super) epoch: i64,
}

impl Hand {
    /// The lease, to be taken into a transaction.
    pub(super) fn lease(&self) -> Lease {
        Lease { control: self.control.clone(), id: self.job.id.clone(), epoch: self.epoch }
    }

    /// What a batch becomes: cut where the log may not grow any more. What is cut off counts as known all the same.
    pub(super) fn piece(&self, batch: &Batch) -> Piece {
        let room = self.control.settings().jobs.max_log_bytes.saturating_sub(self.job.log_bytes);
        let kept = usize::try_from(room).map_or(batch.data.len(), |room| room.min(batch.data.len()));
        let moved = |(node, offset): (&JobNode, &u64)| {
            (node.log_offset != *offset).then(|| JobNode { log_offset: *offset, ..node.clone() })
        };
        let moved = self.nodes.iter().zip(&batch.offsets).filter_map(moved).collect();
        let (start, data) = (self.job.log_bytes, batch.data.slice(..kept));
        let is_first_cut = kept < batch.data.len() && !notes::says_cut(&self.job);
        Piece { start, is_object: data.len() >= LARGE, is_first_cut, data, moved: Arc::new(moved) }
    }

    /// Takes note of what was written down, and shows it.
    pub(super) fn wrote(&mut self, piece: Piece) {
        self.job.log_bytes = piece.start + piece.data.len() as u64;
        for moved in piece.moved.iter() {
            if let Some(node) = self.nodes.iter_mut().find(|node| node.node == moved.node) {
                node.log_offset = moved.log_offset;
            }
        }
        if !piece.data.is_empty() {
            self.tail.grew(piece.is_object, self.job.log_bytes);
            self.live.append(piece.start, piece.data);
        }
    }
}

impl Piece {
    /// Carries out the transaction that writes it down, however often it takes. A large piece becomes an object in the same one:
    /// who has lost the lease must not put one in the place of what others have written.
    pub(super) async fn commit<T: Send + 'static>(
        &self,
        lease: &Lease,
        what: &'static str,
        work: impl Fn(&mut Tx<'_>) -> Result<T> + Clone + Send + Sync + 'static,
    ) -> Result<T> {
        if !self.is_object {
            return Hand::write(&lease.control, what, work).await;
        }
        let put = || shelf::put_log(&lease.control, &lease.id, self.start, self.data.clone(), work.clone());
        patiently(what, put).await
    }

    /// Writes it down in a transaction; nobody but the holder of the lease can.
    pub(super) fn insert(&self, tx: &mut Tx<'_>, lease: &Lease) -> Result<()> {
        let (id, length) = (&lease.id, self.data.len() as u64);
        if length > 0 {
            job_logs::insert(tx, id, self.start, length, (!self.is_object).then_some(&self.data))?;
        }
        for node in self.moved.iter() {
            job_nodes::advance(tx, node)?;
        }
        if !self.moved.is_empty() {
            let patience = lease.control.settings().lease;
            jobs::set_log_bytes(tx, id, lease.epoch, self.start + length, patience)?;
        }
        Ok(())
    }
}

/// Writes a piece down, and with it that the commands run, if that is to be said; returns the job if it has changed.
pub(super) async fn write(lease: Lease, piece: Piece, has_begun: bool) -> Result<(Piece, Option<Job>)> {
    let (held, written) = (lease.clone(), piece.clone());
    let work = move |tx: &mut Tx<'_>| -> Result<Option<Job>> {
        written.insert(tx, &held)?;
        match has_begun || written.is_first_cut {
            true => change(tx, &held, has_begun, written.is_first_cut).map(Some),
            false => Ok(None),
        }
    };
    let job = piece.commit(&lease, "its log", work).await?;
    Ok((piece, job))
}

/// Moves a job to RUNNING, unless somebody wants it stopped already, and says that its log is cut off.
fn change(tx: &mut Tx<'_>, lease: &Lease, has_begun: bool, is_cut: bool) -> Result<Job> {
    let (mut job, now) = (jobs::leased(tx, &lease.id, lease.epoch)?, tx.now());
    let begins = has_begun && job.state == State::Starting;
    if begins {
        job = job.moved(now, State::run)?;
        let detail = serde_json::json!({ "cluster": job.cluster, "attempt": job.attempt });
        events::record(tx, events::ENGINE, job.owner.scope(), job.id.as_str(), "job.started", &detail)?;
    }
    if is_cut {
        notes::add_cut(&mut job);
    }
    if begins || is_cut {
        jobs::save(tx, &job)?;
        job.version += 1;
    }
    Ok(job)
}
