//! The note of a job: what its owner should know besides its outcome. Pure.

use tarn_model::jobs::Job;

const TRUNCATED: &str = "its output exceeded the limit and is cut off";

/// Appends a text to the note of a job.
pub(in crate::jobs) fn add_note(job: &mut Job, note: &str) {
    job.note = Some(match job.note.take() {
        Some(before) => format!("{before}; {note}"),
        None => note.to_owned(),
    });
}

/// Notes that the log of a job is truncated, unless its note already says so.
pub(in crate::jobs) fn add_truncation_note(job: &mut Job) {
    if !has_truncation_note(job) {
        add_note(job, TRUNCATED);
    }
}

/// Returns whether the note of a job says that its log is truncated.
pub(in crate::jobs) fn has_truncation_note(job: &Job) -> bool {
    job.note.as_deref().is_some_and(|note| note.contains(TRUNCATED))
}

/// Replaces the note of a job by why it is attempted again. A truncation note is kept.
pub(in crate::jobs) fn set_retry_note(job: &mut Job, why: &str) {
    let was_truncated = has_truncation_note(job);
    job.note = Some(format!("attempt {} ended: {why}", job.attempt));
    if was_truncated {
        add_note(job, TRUNCATED);
    }
}
