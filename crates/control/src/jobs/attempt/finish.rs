//! The end of an attempt and of a job, each in one transaction with everything that follows from it.

use tarn_model::jobs::{Job, State};
use tarn_store::{Tx, events, job_logs, jobs};

use super::append::{Lease, Piece};
use super::collect::Collected;
use super::endings::Verdict;
use super::ends::Ends;
use super::gathered::Batch;
use super::hand::{Hand, patiently};
use super::{compact, notes, shelf, teardown};
use crate::{Control, Result};

/// How it goes on after an attempt.
pub(super) enum Turn {
    /// It waits for its turn again.
    Again,
    /// Its files have to be made safe.
    Collect(Box<Job>),
    /// It has ended.
    Ended(Box<Job>),
}

/// Writes down the end of an attempt with the rest of its output, and the end of the job if nothing has to be made safe before.
pub(super) async fn attempt(hand: &mut Hand, verdict: Verdict, rest: Batch) -> Result<Turn> {
    let (lease, piece, has_begun) = (hand.lease(), hand.piece(&rest), hand.has_begun);
    let log_bytes = piece.start + piece.data.len() as u64;
    let needs_nothing = hand.job.config.outputs.is_empty() && !hand.job.has_files();
    let ends_at_once = needs_nothing && compact::is_small(log_bytes);
    if ends_at_once {
        patiently("the place of its log", || shelf::ready(&hand.control)).await?;
    }
    let ends = Ends::default();
    let (held, written, recorded) = (lease.clone(), piece.clone(), ends.clone());
    let work = move |tx: &mut Tx<'_>| -> Result<Turn> {
        recorded.begin();
        let mut job = jobs::leased(tx, &held.id, held.epoch)?;
        if written.is_first_cut {
            notes::add_cut(&mut job);
        }
        let is_retried = verdict.may_retry && job.is_retried_after(&verdict.outcome);
        if is_retried || !ends_at_once {
            written.insert(tx, &held)?;
        }
        if is_retried {
            return again(tx, &held, job, &verdict);
        }
        let (now, outcome) = (tx.now(), verdict.outcome.clone());
        let mut job = job.moved(now, |state| state.collect(outcome))?;
        if has_begun && job.started.is_none() {
            job.started = Some(now);
        }
        if !ends_at_once {
            jobs::save(tx, &job)?;
            jobs::renew(tx, &held.id, held.epoch, held.control.settings().lease)?;
            job.version += 1;
            return Ok(Turn::Collect(Box::new(job)));
        }
        insert_whole(tx, &held, &written)?;
        job.log_bytes = log_bytes;
        end(tx, &held.control, job, &recorded).map(|job| Turn::Ended(Box::new(job)))
    };
    let turn = piece.commit(&lease, "the end of an attempt", work).await?;
    ends.count();
    hand.wrote(piece);
    told(hand, &turn);
    Ok(turn)
}

/// Writes down the end of a job of which everything is safe, or as much as can be.
pub(super) async fn job(hand: &mut Hand, collected: Collected) -> Result<()> {
    let (lease, ends) = (hand.lease(), Ends::default());
    let (has_rows, recorded) = (compact::is_small(hand.job.log_bytes), ends.clone());
    let work = move |tx: &mut Tx<'_>| -> Result<Turn> {
        recorded.begin();
        let mut job = jobs::leased(tx, &lease.id, lease.epoch)?;
        if has_rows {
            compact::merge_small(tx, &job.id)?;
        }
        // Its archive is gone by now.
        job.archive_bytes = job.archive_bytes.map(|_| 0);
        if let Some(note) = &collected.note {
            notes::add(&mut job, note);
        }
        if collected.is_only_there {
            teardown::leave(tx, &mut job)?;
        }
        end(tx, &lease.control, job, &recorded).map(|job| Turn::Ended(Box::new(job)))
    };
    let turn = Hand::write(&hand.control, "the end of a job", work).await?;
    ends.count();
    told(hand, &turn);
    Ok(())
}

/// Ends a job that is being collected, in a transaction: says so, and lets its cluster go if nothing else needs it.
fn end(tx: &mut Tx<'_>, control: &Control, job: Job, ends: &Ends) -> Result<Job> {
    let now = tx.now();
    let mut job = job.moved(now, State::end)?;
    jobs::save(tx, &job)?;
    job.version += 1;
    ends.record(tx, &job)?;
    match teardown::after(tx, control, &job, ends)? {
        Some(changed) if changed.id == job.id => Ok(changed),
        _ => Ok(job),
    }
}

/// Puts a job back into the line. Whoever admits it next need not wait for the lease.
fn again(tx: &mut Tx<'_>, lease: &Lease, job: Job, verdict: &Verdict) -> Result<Turn> {
    let why = match &verdict.outcome {
        tarn_model::jobs::Outcome::Failed { reason } => reason.clone(),
        outcome => format!("exit code {}", outcome.exit_code().unwrap_or_default()),
    };
    let now = tx.now();
    let mut job = job.moved(now, State::again)?;
    notes::set_again(&mut job, &why);
    job.attempt += 1;
    jobs::save(tx, &job)?;
    jobs::release(tx, &lease.id, lease.epoch)?;
    let detail = serde_json::json!({ "attempt": job.attempt, "reason": why });
    events::record(tx, events::ENGINE, job.owner.scope(), job.id.as_str(), "job.retried", &detail)?;
    Ok(Turn::Again)
}

/// Writes the last piece of a small log down. If it is the only one, it becomes an object at once.
fn insert_whole(tx: &mut Tx<'_>, lease: &Lease, piece: &Piece) -> Result<()> {
    let length = piece.data.len() as u64;
    if piece.start > 0 {
        piece.insert(tx, lease)?;
        return compact::merge_small(tx, &lease.id);
    }
    if length > 0 {
        shelf::put_small_log(tx, &lease.id, 0, &piece.data)?;
    }
    let whole = Piece { is_object: true, ..piece.clone() };
    debug_assert!(job_logs::inline(tx, &lease.id)?.is_empty(), "a log without bytes has no rows");
    whole.insert(tx, lease)
}

/// What is said, counted and rung for after the transaction.
fn told(hand: &mut Hand, turn: &Turn) {
    match turn {
        Turn::Again => metrics::counter!("tarn_jobs_retried_total").increment(1),
        Turn::Collect(job) => hand.job = Job { log_bytes: hand.job.log_bytes, ..(**job).clone() },
        Turn::Ended(job) => hand.job = (**job).clone(),
    }
    hand.touch();
    hand.control.jobs_changed().notify_one();
    // It may have begun to destroy the cluster.
    hand.control.due().notify_one();
}
