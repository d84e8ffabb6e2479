//! The end of an attempt and of a job, each in one transaction with everything that follows from it.

use tarn_model::events::{Event, JobEvent};
use tarn_model::jobs::{Job, Outcome, State};
use tarn_store::{Tx, job_logs, jobs};

use super::verdict::Verdict;
use crate::jobs::files::collect::Collected;
use crate::jobs::files::{job_files, job_space};
use crate::jobs::logs::append::{JobLease, LogPiece};
use crate::jobs::logs::compact;
use crate::jobs::logs::log_buffer::LogBatch;
use crate::jobs::queue::ended_metrics::EndedMetrics;
use crate::jobs::queue::leased_job::{LeasedJob, retry_while_unavailable, retry_write};
use crate::jobs::queue::{job_note, teardown};
use crate::{Control, Result};

/// What follows an attempt.
pub(in crate::jobs) enum AfterAttempt {
    /// The job is queued again.
    Retry,
    /// Its outputs and its log have to be saved.
    Collect(Box<Job>),
    Ended(Box<Job>),
}

/// Stores the end of an attempt with the rest of its output. Also ends the job, unless its files have to be saved
/// first.
pub(in crate::jobs) async fn finish_attempt(
    leased: &mut LeasedJob,
    verdict: Verdict,
    rest: LogBatch,
) -> Result<AfterAttempt> {
    let piece = leased.log_piece(&rest);
    match try_finish_attempt(leased, &verdict, piece.clone()).await {
        // There is no room for the rest of its output: the attempt ends without it.
        Err(error) if job_space::is_limit_reached(&error) => {
            try_finish_attempt(leased, &verdict, piece.cut_over_quota()).await
        }
        finished => finished,
    }
}

async fn try_finish_attempt(leased: &mut LeasedJob, verdict: &Verdict, piece: LogPiece) -> Result<AfterAttempt> {
    let (lease, has_begun, verdict) = (leased.lease(), leased.has_begun, verdict.clone());
    let log_bytes = piece.start + piece.data.len() as u64;
    let needs_nothing = leased.job.config.outputs.is_empty() && !leased.job.has_files();
    let ends_at_once = needs_nothing && compact::is_small_log(log_bytes);
    if ends_at_once {
        retry_while_unavailable("the bucket of its log", || job_files::ensure_bucket(&leased.control)).await?;
    }
    let ended_metrics = EndedMetrics::default();
    let (held, written, recorded) = (lease.clone(), piece.clone(), ended_metrics.clone());
    let work = move |tx: &mut Tx<'_>| -> Result<AfterAttempt> {
        recorded.reset();
        let mut job = jobs::leased(tx, &held.id, held.epoch)?;
        if written.is_first_cut {
            job_note::add_truncation_note(&mut job, written.is_over_quota);
        }
        let is_retried = verdict.may_retry && job.is_retried_after(&verdict.outcome);
        if is_retried || !ends_at_once {
            written.insert_into(tx, &held)?;
        }
        if is_retried {
            return requeue_job(tx, &held, job, &verdict);
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
            return Ok(AfterAttempt::Collect(Box::new(job)));
        }
        insert_small_log(tx, &held, &written)?;
        job.log_bytes = log_bytes;
        end_job(tx, &held.control, job, &recorded).map(|job| AfterAttempt::Ended(Box::new(job)))
    };
    let next = piece.commit_with(&lease, "the end of an attempt", work).await?;
    ended_metrics.count_ended();
    leased.record_written(piece);
    publish_change(leased, &next);
    Ok(next)
}

/// Stores the end of a job whose files are saved, as far as they could be.
pub(in crate::jobs) async fn finish_job(leased: &mut LeasedJob, collected: Collected) -> Result<()> {
    let (lease, ended_metrics) = (leased.lease(), EndedMetrics::default());
    let (has_rows, recorded) = (compact::is_small_log(leased.job.log_bytes), ended_metrics.clone());
    let work = move |tx: &mut Tx<'_>| -> Result<AfterAttempt> {
        recorded.reset();
        let mut job = jobs::leased(tx, &lease.id, lease.epoch)?;
        if has_rows {
            compact::merge_small_log(tx, &job.id)?;
        }
        // The archive has been removed by now.
        job.archive_bytes = job.archive_bytes.map(|_| 0);
        if let Some(note) = &collected.note {
            job_note::add_note(&mut job, note);
        }
        if collected.is_only_on_node {
            teardown::keep_cluster(tx, &mut job)?;
        }
        end_job(tx, &lease.control, job, &recorded).map(|job| AfterAttempt::Ended(Box::new(job)))
    };
    let next = retry_write(&leased.control, "the end of a job", work).await?;
    ended_metrics.count_ended();
    publish_change(leased, &next);
    Ok(())
}

/// Ends a job that is being collected, in a transaction, and begins the teardown of its cluster if nothing else needs
/// it.
fn end_job(tx: &mut Tx<'_>, control: &Control, job: Job, ended_metrics: &EndedMetrics) -> Result<Job> {
    let now = tx.now();
    let mut job = job.moved(now, State::end)?;
    jobs::save(tx, &job)?;
    job.version += 1;
    ended_metrics.record_end(tx, &job)?;
    match teardown::tear_down_after(tx, control, &job, ended_metrics)? {
        Some(changed) if changed.id == job.id => Ok(changed),
        _ => Ok(job),
    }
}

/// Puts a job back into the queue and releases its lease, so that the next attempt need not wait for the lease to
/// expire.
fn requeue_job(tx: &mut Tx<'_>, lease: &JobLease, job: Job, verdict: &Verdict) -> Result<AfterAttempt> {
    let why = match &verdict.outcome {
        Outcome::Failed { reason } => reason.clone(),
        outcome => format!("exit code {}", outcome.exit_code().unwrap_or_default()),
    };
    let now = tx.now();
    let mut job = job.moved(now, State::again)?;
    job_note::set_retry_note(&mut job, &why);
    job.attempt += 1;
    jobs::save(tx, &job)?;
    jobs::release(tx, &lease.id, lease.epoch)?;
    let retried = JobEvent::Retried { attempt: job.attempt, reason: why };
    tx.record(job.owner.scope(), Event::Job(job.id.clone(), retried))?;
    Ok(AfterAttempt::Retry)
}

/// Stores the last piece of a small log. If it is the only piece, it becomes an object at once.
fn insert_small_log(tx: &mut Tx<'_>, lease: &JobLease, piece: &LogPiece) -> Result<()> {
    let length = piece.data.len() as u64;
    if piece.start > 0 {
        piece.insert_into(tx, lease)?;
        return compact::merge_small_log(tx, &lease.id);
    }
    if length > 0 {
        job_files::put_small_log(tx, &lease.id, 0, &piece.data)?;
    }
    let whole = LogPiece { is_object: true, ..piece.clone() };
    debug_assert!(job_logs::inline(tx, &lease.id)?.is_empty(), "a log without bytes has no rows");
    whole.insert_into(tx, lease)
}

/// Updates the job, the metrics and the wakers after the transaction.
fn publish_change(leased: &mut LeasedJob, next: &AfterAttempt) {
    match next {
        AfterAttempt::Retry => metrics::counter!("tarn_jobs_retried_total").increment(1),
        AfterAttempt::Collect(job) => leased.job = Job { log_bytes: leased.job.log_bytes, ..(**job).clone() },
        AfterAttempt::Ended(job) => leased.job = (**job).clone(),
    }
    leased.notify_own_change();
    leased.control.memory.jobs_changed.notify_one();
    // The teardown of the cluster may have begun.
    leased.control.memory.due.notify_one();
}
