//! The note of a job: what its owner should know besides its outcome. Pure.

use tarn_model::jobs::Job;

const TRUNCATED: &str = "its output exceeded the limit and is cut off";
const OVER_QUOTA: &str = "the limit of job files, logs and outputs is reached, so its output is cut off; delete jobs";

/// Appends a text to the note of a job.
pub(in crate::jobs) fn add_note(job: &mut Job, note: &str) {
    job.note = Some(match job.note.take() {
        Some(before) => format!("{before}; {note}"),
        None => note.to_owned(),
    });
}

/// Notes that the log of a job is truncated, unless its note already says so: at its own limit, or at the limit of
/// all jobs of its owner.
pub(in crate::jobs) fn add_truncation_note(job: &mut Job, is_over_quota: bool) {
    if !has_truncation_note(job) {
        add_note(job, if is_over_quota { OVER_QUOTA } else { TRUNCATED });
    }
}

/// Returns whether the note of a job says that its log is truncated.
pub(in crate::jobs) fn has_truncation_note(job: &Job) -> bool {
    truncation_note(job).is_some()
}

fn truncation_note(job: &Job) -> Option<&'static str> {
    [TRUNCATED, OVER_QUOTA].into_iter().find(|text| job.note.as_deref().is_some_and(|note| note.contains(text)))
}

/// Replaces the note of a job by why it is attempted again. A truncation note is kept.
pub(in crate::jobs) fn set_retry_note(job: &mut Job, why: &str) {
    let truncated = truncation_note(job);
    job.note = Some(format!("attempt {} ended: {why}", job.attempt));
    if let Some(text) = truncated {
        add_note(job, text);
    }
}
