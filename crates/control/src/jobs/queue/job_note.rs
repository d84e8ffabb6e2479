//! What the owner of a job should know besides how it ended. Pure.

use tarn_model::jobs::Job;

/// That not all of its output is kept.
const CUT: &str = "its output was longer than is kept, and is cut off";

/// Adds something that the owner of a job should know.
pub(super) fn add(job: &mut Job, note: &str) {
    job.note = Some(match job.note.take() {
        Some(before) => format!("{before}; {note}"),
        None => note.to_owned(),
    });
}

/// Says that the output of a job is cut off, unless that was said.
pub(super) fn add_cut(job: &mut Job) {
    if !says_cut(job) {
        add(job, CUT);
    }
}

/// Whether it was said that the output of a job is cut off.
pub(super) fn says_cut(job: &Job) -> bool {
    job.note.as_deref().is_some_and(|note| note.contains(CUT))
}

/// Says why a job is attempted again, in the place of why it was before.
pub(super) fn set_again(job: &mut Job, why: &str) {
    let was_cut = says_cut(job);
    job.note = Some(format!("attempt {} ended: {why}", job.attempt));
    if was_cut {
        add(job, CUT);
    }
}
