//! How long a request has for what it is doing now, when nobody could work on it for a while.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::requests::{Request, RequestStatus, RequestType};

use super::{PULL, definition};
use crate::Settings;

/// The request with all the time that its present step would have if it began now; never with less than it has.
pub(crate) fn with_fresh_deadline(mut request: Request, now: Time, settings: &Settings) -> Request {
    let deadline = now.after(time_for_step(&request, settings));
    if deadline <= request.deadline {
        return request;
    }
    // Who sleeps until its deadline, because only its turn or the line wakes it, sleeps on.
    if request.due == request.deadline && request.status == RequestStatus::Pending {
        request.due = deadline;
    }
    Request { deadline, ..request }
}

fn time_for_step(request: &Request, settings: &Settings) -> Duration {
    if request.failure.is_some() {
        // The time for undoing is counted from the deadline on.
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
