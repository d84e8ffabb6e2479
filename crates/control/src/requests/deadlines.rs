//! New deadlines for requests that no runner could work on for a while.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::requests::{Request, RequestStatus, RequestType};

use super::{PULL, definition};
use crate::Settings;

/// Returns the request with the full time of its current step, counted from now; never with an earlier deadline.
pub(crate) fn with_fresh_deadline(mut request: Request, now: Time, settings: &Settings) -> Request {
    let deadline = now.after(time_for_step(&request, settings));
    if deadline <= request.deadline {
        return request;
    }
    // A request that sleeps until its deadline, because only an admission or the queue wakes it, keeps sleeping.
    if request.due == request.deadline && request.status == RequestStatus::Pending {
        request.due = deadline;
    }
    Request { deadline, ..request }
}

fn time_for_step(request: &Request, settings: &Settings) -> Duration {
    if request.failure.is_some() {
        // The time for the undo is counted from the deadline.
        return Duration::ZERO;
    }
    let waits_for_turn = request.status == RequestStatus::Pending && request.due == request.deadline;
    if request.waiting || waits_for_turn {
        return settings.capacity_deadline;
    }
    let step = definition(request.kind).steps.get(request.step as usize);
    match request.kind {
        _ if step.is_some_and(|step| step.name == PULL) => settings.image_pull_deadline,
        RequestType::StorageDetach => settings.work_deadline.saturating_add(settings.detach_grace),
        _ => settings.work_deadline,
    }
}
