//! New deadlines for requests that no runner could work on for a while.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::requests::{Progress, Request, RequestKind, RequestStatus};

use super::pulls_image;
use crate::Settings;

/// Returns the request with the full time of its current step, counted from now; never with an earlier deadline.
pub(crate) fn with_fresh_deadline(mut request: Request, now: Time, settings: &Settings) -> Request {
    let deadline = now.after(time_for_step(&request, settings));
    if deadline <= request.deadline {
        return request;
    }
    // A request that sleeps until its deadline, because only an admission or the queue wakes it, keeps sleeping.
    if request.due == request.deadline && request.status() == RequestStatus::Pending {
        request.due = deadline;
    }
    Request { deadline, ..request }
}

fn time_for_step(request: &Request, settings: &Settings) -> Duration {
    match request.progress {
        Progress::Queued => settings.capacity_deadline,
        // It waits to be admitted.
        Progress::New if request.due == request.deadline => settings.capacity_deadline,
        Progress::New | Progress::Forward { .. } => match &request.kind {
            RequestKind::ClaimCluster(_) if pulls_image(request) => settings.image_pull_deadline,
            RequestKind::DetachStorage(_) => settings.work_deadline.saturating_add(settings.detach_grace),
            _ => settings.work_deadline,
        },
        // The time for the undo is counted from the deadline.
        Progress::Undoing { .. } | Progress::Completed { .. } | Progress::Failed { .. } => Duration::ZERO,
    }
}
