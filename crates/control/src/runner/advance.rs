//! Advances one request step by step until it ends, waits, has to be retried later, or the lease is lost.

use std::future::Future;
use std::time::Duration;

use tarn_model::requests::{Request, RequestStatus, RequestType, backoff};
use tarn_store::{Tx, requests};

use super::Runner;
use super::faults::{Fault, FaultPoint};
use crate::requests::{Commit, Context, Definition, Failure, Next, Step, Undo, Work, definition, end_request};
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
            let id = request.id.clone();
            lease = match self.advance_one_step(*request).await {
                Ok(Lease::Ended(kind, status)) => {
                    let labels = [("type", kind.name()), ("status", status.name())];
                    metrics::counter!("tarn_requests_ended_total", &labels).increment(1);
                    if kind == RequestType::ClusterRestart {
                        self.control.restarted().notify_one();
                    }
                    // Keys may have changed after the step that pushed them to these nodes.
                    self.control.access_changed().notify_one();
                    // A cluster with waiting jobs may be running now, or a node may have come back.
                    self.control.jobs_changed().notify_one();
                    Lease::Released
                }
                Ok(lease) => lease,
                // Another runner holds the lease now and continues the request.
                Err(error) if error.kind == Kind::Conflict => Lease::Released,
                Err(error) => {
                    tracing::warn!(request = %id, cause = ?error.cause, "a request could not be advanced: {error}");
                    Lease::Released
                }
            };
        }
    }

    async fn advance_one_step(&self, request: Request) -> Result<Lease> {
        let definition = definition(request.kind);
        let now = self.control.clock().now();
        if request.failure.is_none() {
            let at = request.step as usize;
            match definition.steps.get(at) {
                None => self.commit_completion(request, definition).await,
                Some(_) if now >= request.deadline => {
                    let why = if request.waiting {
                        format!("no capacity became free by {}; try again later, or request less", request.deadline)
                    } else {
                        format!("it did not finish by {}", request.deadline)
                    };
                    self.begin_undo(request, why).await
                }
                Some(step) => self.run_step(request, step).await,
            }
        } else {
            let left = request.step as usize;
            let step = left.checked_sub(1).and_then(|at| definition.steps.get(at));
            match step {
                None => self.commit_failure(request, definition, None).await,
                Some(step) if now >= request.deadline.after(self.control.settings().work_deadline) => {
                    let note = format!("Undoing step '{}' failed as well, so something may be left behind.", step.name);
                    self.commit_failure(request, definition, Some(note)).await
                }
                Some(step) => self.undo_step(request, step).await,
            }
        }
    }

    async fn run_step(&self, request: Request, step: &'static Step) -> Result<Lease> {
        let ctx = Context { control: &self.control, request: &request };
        let at = FaultPoint { kind: request.kind, step: step.name, undo: false };
        let tried = self.try_step(&request, at, || (step.run)(ctx)).await;
        match tried {
            StepOutcome::Succeeded(commit) => {
                match self.commit_step(request.clone(), commit, |request| request.step += 1).await {
                    Err(error) if error.kind == Kind::Conflict => self.handle_conflict(request, step, error).await,
                    held => held,
                }
            }
            StepOutcome::Failed(Failure::Retry(why)) => self.retry_later(request, step, &why).await,
            StepOutcome::Failed(Failure::Permanent(why)) => self.begin_undo(request, why).await,
            StepOutcome::LeaseLost => Ok(Lease::Released),
        }
    }

    /// Retries after a lost race. If the lease was lost, the retry fails as well. A refusal by a domain rule is
    /// permanent.
    async fn handle_conflict(&self, request: Request, step: &'static Step, error: Error) -> Result<Lease> {
        match error.code {
            Error::CHANGED_MEANWHILE => self.retry_later(request, step, &error.message).await,
            _ => self.begin_undo(request, error.message).await,
        }
    }

    async fn undo_step(&self, request: Request, step: &'static Step) -> Result<Lease> {
        let Undo::With(undo) = step.undo else {
            return self.commit_step(request, Box::new(|_| Ok(Next::Done)), |request| request.step -= 1).await;
        };
        let ctx = Context { control: &self.control, request: &request };
        let at = FaultPoint { kind: request.kind, step: step.name, undo: true };
        let tried = self.try_step(&request, at, || undo(ctx)).await;
        match tried {
            StepOutcome::Succeeded(commit) => self.commit_step(request, commit, |request| request.step -= 1).await,
            // An undo has no undo: it is retried until its own deadline.
            StepOutcome::Failed(Failure::Retry(why) | Failure::Permanent(why)) => {
                self.retry_later(request, step, &why).await
            }
            StepOutcome::LeaseLost => Ok(Lease::Released),
        }
    }

    /// Runs one try of a step with its timeout, and renews the lease meanwhile.
    async fn try_step<'a>(&self, request: &Request, at: FaultPoint, act: impl Fn() -> Work<'a>) -> StepOutcome {
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
    async fn run_until_stalled(
        &self,
        request: &Request,
        at: FaultPoint,
        work: Work<'_>,
    ) -> std::result::Result<Commit, Failure> {
        let limit = self.control.settings().step_limit();
        let (mut work, mut reports) = (work, 0);
        loop {
            if let Ok(acted) = tokio::time::timeout(limit, &mut work).await {
                return acted;
            }
            let (before, has_time) = (reports, at.undo || self.control.clock().now() < request.deadline);
            reports = self.control.step_progress().report_count(&request.id);
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
    async fn commit_step(&self, request: Request, commit: Commit, progress: fn(&mut Request)) -> Result<Lease> {
        let lease = self.control.settings().lease;
        let write = self.control.store().write(move |tx| -> Result<Lease> {
            let mut request = request.clone();
            let next = commit(tx)?;
            match next {
                Next::Wait => {
                    // The event that lets it continue wakes the request; otherwise its deadline does.
                    request.due = request.deadline;
                    request.status = RequestStatus::Pending;
                    (request.attempts, request.message) = (0, None);
                    requests::save(tx, &request)?;
                    requests::release(tx, &request)?;
                    return Ok(Lease::Released);
                }
                Next::DoneUntil(until) => (request.waiting, request.deadline) = (false, until),
                Next::SkipUntil(until) => {
                    (request.waiting, request.deadline) = (false, until);
                    progress(&mut request);
                }
                Next::Done => {}
            }
            progress(&mut request);
            request.attempts = 0;
            request.status = RequestStatus::Processing;
            let definition = definition(request.kind);
            if request.failure.is_none() && request.step as usize == definition.steps.len() {
                complete_request(tx, request, definition)
            } else {
                requests::save(tx, &request)?;
                requests::renew(tx, &request, lease)?;
                Ok(Lease::Kept(Box::new(request)))
            }
        });
        let held = write.await;
        // A commit may have woken other requests.
        self.control.due().notify_one();
        held
    }

    async fn commit_completion(&self, request: Request, definition: &'static Definition) -> Result<Lease> {
        let write = self.control.store().write(move |tx| complete_request(tx, request.clone(), definition));
        write.await
    }

    /// Releases the request and schedules a retry with a backoff that grows with every failure.
    async fn retry_later(&self, mut request: Request, step: &'static Step, why: &str) -> Result<Lease> {
        request.attempts = request.attempts.saturating_add(1);
        let pause: Duration = backoff(request.attempts, self.control.ids().bits());
        request.due = self.control.clock().now().after(pause);
        request.status = RequestStatus::Retrying;
        request.message = Some(format!("try {} of '{}' failed: {why}", request.attempts, step.name));
        tracing::debug!(request = %request.id, step = step.name, why, "will try again");
        metrics::counter!("tarn_step_failures_total", "step" => step.name).increment(1);
        let write = self.control.store().write(move |tx| -> Result<()> {
            requests::save(tx, &request)?;
            Ok(requests::release(tx, &request)?)
        });
        write.await.map(|()| Lease::Released)
    }

    /// Begins the undo with the current step: it may have happened completely, partly or not at all.
    async fn begin_undo(&self, mut request: Request, why: String) -> Result<Lease> {
        request.failure = Some(why);
        request.step += 1;
        request.attempts = 0;
        request.waiting = false;
        request.status = RequestStatus::Processing;
        // An early failure must not shorten the time for the undo.
        request.deadline = self.control.clock().now();
        let lease = self.control.settings().lease;
        let write = self.control.store().write(move |tx| -> Result<Lease> {
            requests::save(tx, &request)?;
            requests::renew(tx, &request, lease)?;
            Ok(Lease::Kept(Box::new(request.clone())))
        });
        write.await
    }

    async fn commit_failure(
        &self,
        request: Request,
        definition: &'static Definition,
        note: Option<String>,
    ) -> Result<Lease> {
        let write = self.control.store().write(move |tx| -> Result<Lease> {
            let mut request = request.clone();
            let mut why = request.failure.clone().unwrap_or_default();
            if let Some(note) = &note {
                why = format!("{why}. {note}");
            }
            (definition.failed)(&request, tx, &why)?;
            request.status = RequestStatus::Failed;
            request.message = Some(match note_for_caller(tx, &request, definition)? {
                Some(note) => format!("{why}. {note}."),
                None => why,
            });
            end_and_release(tx, request, "request.failed")
        });
        let ended = write.await;
        self.control.due().notify_one();
        ended
    }
}

fn complete_request(tx: &mut Tx<'_>, mut request: Request, definition: &Definition) -> Result<Lease> {
    request.status = RequestStatus::Completed;
    request.message = Some(match note_for_caller(tx, &request, definition)? {
        Some(note) => format!("{} {note}.", definition.completed),
        None => definition.completed.to_owned(),
    });
    end_and_release(tx, request, "request.completed")
}

/// Returns the notes of the steps of a request, which are added to its final message.
fn note_for_caller(tx: &mut Tx<'_>, request: &Request, definition: &Definition) -> Result<Option<String>> {
    if definition.takes_notes { Ok(requests::note(tx, &request.id)?) } else { Ok(None) }
}

fn end_and_release(tx: &mut Tx<'_>, request: Request, verb: &'static str) -> Result<Lease> {
    let ended = Lease::Ended(request.kind, request.status);
    end_request(tx, request, verb)?;
    Ok(ended)
}
