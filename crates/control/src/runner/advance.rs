//! Advances one request step by step until it ends, waits, has to be retried later, or the lease is lost.

use std::future::Future;
use std::time::Duration;

use tarn_model::requests::{Progress, Request, RequestStatus, RequestType, backoff};
use tarn_store::{Tx, requests};

use super::Runner;
use super::faults::{Fault, FaultPoint};
use crate::requests::{
    Commit, Context, Failure, Next, RunningStep, Step, StepResult, Undo, definition, end_request, fail_object,
};
use crate::{Error, Kind, Result};

/// What happened to the lease of a request after a step.
enum Lease {
    Kept(Box<Request>),
    Released,
    Ended(RequestType, RequestStatus),
}

/// The outcome of one try of a step.
enum StepOutcome {
    Succeeded(Commit),
    Failed(Failure),
    LeaseLost,
}

impl Runner {
    /// Advances a leased request as far as possible now.
    pub(super) async fn advance(&self, request: Request) {
        let mut lease = Lease::Kept(Box::new(request));
        while let Lease::Kept(request) = lease {
            lease = match self.advance_one_step(&request).await {
                Ok(Lease::Ended(kind, status)) => {
                    let labels = [("type", kind.name()), ("status", status.name())];
                    metrics::counter!("tarn_requests_ended_total", &labels).increment(1);
                    if kind == RequestType::ClusterRestart {
                        self.control.memory.restarted.notify_one();
                    }
                    // Keys may have changed after the step that pushed them to these nodes.
                    self.control.memory.access_changed.notify_one();
                    // A cluster with waiting jobs may be running now, or a node may have come back.
                    self.control.memory.jobs_changed.notify_one();
                    Lease::Released
                }
                Ok(lease) => lease,
                // Another runner holds the lease now and continues the request.
                Err(error) if error.kind == Kind::Conflict => Lease::Released,
                Err(error) => {
                    tracing::warn!(request = %request.id, cause = ?error.cause, "a request could not be advanced: {error}");
                    Lease::Released
                }
            };
        }
    }

    async fn advance_one_step(&self, request: &Request) -> Result<Lease> {
        let (definition, now) = (definition(&request.kind), self.control.clock().now());
        match &request.progress {
            Progress::New | Progress::Queued | Progress::Forward { .. } => {
                match definition.step_at(request.progress.step()) {
                    None => self.commit_step(request, Box::new(|_| Ok(Next::Done))).await,
                    Some(_) if now >= request.deadline => self.begin_undo(request, describe_missed(request)).await,
                    Some(step) => self.run_step(request, step).await,
                }
            }
            Progress::Undoing { left, .. } => match left.checked_sub(1).and_then(|last| definition.step_at(last)) {
                None => self.commit_failure(request, None).await,
                Some(step) if now >= request.deadline.after(self.control.settings().work_deadline) => {
                    let note = format!("Undoing step '{}' failed as well, so something may be left behind.", step.name);
                    self.commit_failure(request, Some(note)).await
                }
                Some(step) => self.undo_step(request, step).await,
            },
            Progress::Completed { .. } | Progress::Failed { .. } => Ok(Lease::Released),
        }
    }

    async fn run_step<'a>(&'a self, request: &'a Request, step: &Step<'a>) -> Result<Lease> {
        let ctx = Context { control: &self.control, request };
        match self.try_step(request, step.name, false, || (step.run)(ctx)).await {
            StepOutcome::Succeeded(commit) => match self.commit_step(request, commit).await {
                // It lost a race. If it lost its lease, the retry fails as well.
                Err(error) if error.code == Error::CHANGED_MEANWHILE => {
                    self.retry_later(request, step.name, &error.message).await
                }
                // A refusal by a domain rule is permanent.
                Err(error) if error.kind == Kind::Conflict => self.begin_undo(request, error.message).await,
                held => held,
            },
            StepOutcome::Failed(Failure::Retry(why)) => self.retry_later(request, step.name, &why).await,
            StepOutcome::Failed(Failure::Permanent(why)) => self.begin_undo(request, why).await,
            StepOutcome::LeaseLost => Ok(Lease::Released),
        }
    }

    async fn undo_step<'a>(&'a self, request: &'a Request, step: &Step<'a>) -> Result<Lease> {
        let Undo::With(undo) = &step.undo else {
            return self.commit_step(request, Box::new(|_| Ok(Next::Done))).await;
        };
        let ctx = Context { control: &self.control, request };
        match self.try_step(request, step.name, true, || undo(ctx)).await {
            StepOutcome::Succeeded(commit) => self.commit_step(request, commit).await,
            // An undo has no undo: it is retried until its own deadline.
            StepOutcome::Failed(Failure::Retry(why) | Failure::Permanent(why)) => {
                self.retry_later(request, step.name, &why).await
            }
            StepOutcome::LeaseLost => Ok(Lease::Released),
        }
    }

    /// Runs one try of a step with its timeout, and renews the lease meanwhile.
    async fn try_step<'a>(
        &self,
        request: &Request,
        step: &'static str,
        undo: bool,
        act: impl Fn() -> RunningStep<'a>,
    ) -> StepOutcome {
        let at = FaultPoint { kind: request.kind.request_type(), step, undo };
        let fault = self.faults.at(at);
        match fault {
            Fault::ErrorBefore => return StepOutcome::Failed(Failure::Retry("made to fail before".to_owned())),
            Fault::Permanent => return StepOutcome::Failed(Failure::Permanent("made to fail for good".to_owned())),
            Fault::Twice => drop(act().await),
            Fault::None | Fault::ErrorAfter | Fault::Crash | Fault::TimeoutAfter => {}
        }
        let acted = match self.run_while_leased(request, self.run_until_stalled(request, at, act())).await {
            Ok(acted) => acted,
            Err(()) => return StepOutcome::LeaseLost,
        };
        match (fault, acted) {
            (Fault::Crash, _) => StepOutcome::LeaseLost,
            (Fault::ErrorAfter, Ok(_)) => StepOutcome::Failed(Failure::Retry("made to fail after".to_owned())),
            (Fault::TimeoutAfter, Ok(_)) => StepOutcome::Failed(Failure::Retry("made to look too slow".to_owned())),
            (_, Ok(commit)) => StepOutcome::Succeeded(commit),
            (_, Err(failure)) => StepOutcome::Failed(failure),
        }
    }

    /// Runs a step with its timeout. A step that reports progress gets the same time again after each report, until the
    /// deadline of the request.
    async fn run_until_stalled(&self, request: &Request, at: FaultPoint, mut work: RunningStep<'_>) -> StepResult {
        let (limit, mut reports) = (self.control.settings().step_limit(), 0);
        loop {
            if let Ok(acted) = tokio::time::timeout(limit, &mut work).await {
                return acted;
            }
            let (before, has_time) = (reports, at.undo || self.control.clock().now() < request.deadline);
            reports = self.control.memory.step_progress.report_count(&request.id);
            if reports == before {
                return Err(Failure::Retry(format!("the step took longer than {} seconds", limit.as_secs())));
            }
            if !has_time {
                return Err(Failure::Retry("the deadline of the request has passed".to_owned()));
            }
        }
    }

    /// Runs `work` and renews the lease until it is done; stops as soon as the lease is lost.
    async fn run_while_leased<T>(
        &self,
        request: &Request,
        work: impl Future<Output = T>,
    ) -> std::result::Result<T, ()> {
        let lease = self.control.settings().lease;
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(lease / 3) => {
                    let held = request.clone();
                    let renewed = self.control.store().write(move |tx| requests::renew(tx, &held, lease)).await;
                    if matches!(renewed, Err(tarn_store::Error::Conflict)) {
                        return Err(());
                    }
                }
            }
        }
    }

    /// Commits the result of a step together with the progress of the request.
    async fn commit_step(&self, request: &Request, commit: Commit) -> Result<Lease> {
        let (lease, held) = (self.control.settings().lease, request.clone());
        let write = self.control.store().write(move |tx| -> Result<Lease> {
            let mut request = Request { attempts: 0, ..held.clone() };
            let (done, deadline) = match commit(tx)? {
                Next::Wait { until } => {
                    // The event that lets it continue wakes the request; otherwise this time or its deadline does.
                    let due = until.map_or(request.deadline, |until| until.min(request.deadline));
                    let request = Request { due, message: None, ..request };
                    requests::save(tx, &request)?;
                    requests::release(tx, &request)?;
                    return Ok(Lease::Released);
                }
                Next::Done => (1, request.deadline),
                Next::DoneUntil(until) => (1, until),
                Next::SkipUntil(until) => (2, until),
            };
            (request.progress, request.deadline) = (request.progress.advance(done)?, deadline);
            match request.progress {
                Progress::Forward { next } if next as usize >= definition(&request.kind).steps.len() => {
                    complete_request(tx, request)
                }
                _ => keep_lease(tx, request, lease),
            }
        });
        let held = write.await;
        // A commit may have woken other requests.
        self.control.memory.due.notify_one();
        held
    }

    /// Releases the request and schedules a retry with a backoff that grows with every failure.
    async fn retry_later(&self, request: &Request, step: &'static str, why: &str) -> Result<Lease> {
        let attempts = request.attempts.saturating_add(1);
        let due = self.control.clock().now().after(backoff(attempts, self.control.ids().bits()));
        let message = Some(format!("try {attempts} of '{step}' failed: {why}"));
        let request = Request { attempts, due, message, ..request.clone() };
        tracing::debug!(request = %request.id, step, why, "will try again");
        metrics::counter!("tarn_step_failures_total", "step" => step).increment(1);
        let write = self.control.store().write(move |tx| -> Result<()> {
            requests::save(tx, &request)?;
            Ok(requests::release(tx, &request)?)
        });
        write.await.map(|()| Lease::Released)
    }

    /// Begins the undo.
    async fn begin_undo(&self, request: &Request, why: String) -> Result<Lease> {
        let progress = request.progress.clone().undo(why)?;
        // An early failure must not shorten the time for the undo.
        let deadline = self.control.clock().now();
        let request = Request { progress, attempts: 0, deadline, ..request.clone() };
        let lease = self.control.settings().lease;
        self.control.store().write(move |tx| keep_lease(tx, request.clone(), lease)).await
    }

    async fn commit_failure(&self, request: &Request, note: Option<String>) -> Result<Lease> {
        let request = request.clone();
        let write = self.control.store().write(move |tx| -> Result<Lease> {
            let mut request = request.clone();
            let why = request.progress.failure().unwrap_or_default();
            let why = note.as_ref().map_or_else(|| why.to_owned(), |note| format!("{why}. {note}"));
            fail_object(tx, &request.kind, request.progress.step() == 0, &why)?;
            request.progress = request.progress.fail()?;
            request.message = Some(match note_for_caller(tx, &request)? {
                Some(note) => format!("{why}. {note}."),
                None => why,
            });
            end_and_release(tx, request)
        });
        let ended = write.await;
        self.control.memory.due.notify_one();
        ended
    }
}

fn describe_missed(request: &Request) -> String {
    match request.progress {
        Progress::Queued => {
            format!("no capacity became free by {}; try again later, or request less", request.deadline)
        }
        _ => format!("it did not finish by {}", request.deadline),
    }
}

/// Saves the progress of a request, which continues at once.
fn keep_lease(tx: &mut Tx<'_>, request: Request, lease: Duration) -> Result<Lease> {
    requests::save(tx, &request)?;
    requests::renew(tx, &request, lease)?;
    Ok(Lease::Kept(Box::new(request)))
}

fn complete_request(tx: &mut Tx<'_>, mut request: Request) -> Result<Lease> {
    request.progress = request.progress.complete()?;
    let completed = definition(&request.kind).completed;
    request.message = Some(match note_for_caller(tx, &request)? {
        Some(note) => format!("{completed} {note}."),
        None => completed.to_owned(),
    });
    end_and_release(tx, request)
}

/// Returns the notes of the steps of a request, which are added to its final message.
fn note_for_caller(tx: &mut Tx<'_>, request: &Request) -> Result<Option<String>> {
    if definition(&request.kind).takes_notes { Ok(requests::note(tx, &request.id)?) } else { Ok(None) }
}

fn end_and_release(tx: &mut Tx<'_>, request: Request) -> Result<Lease> {
    let ended = Lease::Ended(request.kind.request_type(), request.status());
    end_request(tx, request)?;
    Ok(ended)
}
