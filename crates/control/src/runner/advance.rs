//! Carrying one request on, step by step, until it ends, waits, has to be tried again later, or the lease is lost.

use std::future::Future;
use std::time::Duration;

use tarn_model::requests::{Request, RequestStatus, RequestType, backoff};
use tarn_store::{Tx, requests};

use super::Runner;
use super::faults::{At, Fault};
use crate::requests::{Commit, Context, Definition, Failure, Next, Step, Undo, Work, conclude, definition};
use crate::{Error, Kind, Result};

/// Whether the runner keeps the request in hand, lets it go, or is done with it.
enum Hold {
    Keep(Box<Request>),
    Let,
    Ended(RequestType, RequestStatus),
}

/// What came of one try of a step.
enum Tried {
    Acted(Commit),
    Failed(Failure),
    Lost,
}

impl Runner {
    /// Carries a leased request on as far as it goes now.
    pub(super) async fn advance(&self, request: Request) {
        let mut hold = Hold::Keep(Box::new(request));
        while let Hold::Keep(request) = hold {
            let id = request.id.clone();
            hold = match self.advance_once(*request).await {
                Ok(Hold::Ended(kind, status)) => {
                    let labels = [("type", kind.name()), ("status", status.name())];
                    metrics::counter!("tarn_requests_ended_total", &labels).increment(1);
                    if kind == RequestType::ClusterRestart {
                        self.control.restarted().notify_one();
                    }
                    // Keys may have changed after the step that told them to nodes which run now.
                    self.control.access_changed().notify_one();
                    // A cluster may run now on which jobs wait, or a node may have come back.
                    self.control.jobs_changed().notify_one();
                    Hold::Let
                }
                Ok(hold) => hold,
                // Whoever has the lease now goes on from here.
                Err(error) if error.kind == Kind::Conflict => Hold::Let,
                Err(error) => {
                    tracing::warn!(request = %id, cause = ?error.cause, "a request could not be carried on: {error}");
                    Hold::Let
                }
            };
        }
    }

    async fn advance_once(&self, request: Request) -> Result<Hold> {
        let definition = definition(request.kind);
        let now = self.control.clock().now();
        if request.failure.is_none() {
            let at = request.step as usize;
            match definition.steps.get(at) {
                None => self.complete(request, definition).await,
                Some(_) if now >= request.deadline => {
                    let why = match request.waiting {
                        true => {
                            format!("no capacity became free by {}; try again later, or with less", request.deadline)
                        }
                        false => format!("it did not finish by {}", request.deadline),
                    };
                    self.turn_back(request, why).await
                }
                Some(step) => self.forward(request, step).await,
            }
        } else {
            let left = request.step as usize;
            let step = left.checked_sub(1).and_then(|at| definition.steps.get(at));
            match step {
                None => self.fail(request, definition, None).await,
                Some(step) if now >= request.deadline.after(self.control.settings().work_deadline) => {
                    let note =
                        format!("Undoing step '{}' did not work either, so something may be left behind.", step.name);
                    self.fail(request, definition, Some(note)).await
                }
                Some(step) => self.back(request, step).await,
            }
        }
    }

    async fn forward(&self, request: Request, step: &'static Step) -> Result<Hold> {
        let ctx = Context { control: &self.control, request: &request };
        let at = At { kind: request.kind, step: step.name, undo: false };
        let tried = self.tried(&request, at, || (step.run)(ctx)).await;
        match tried {
            Tried::Acted(commit) => match self.commit(request.clone(), commit, |request| request.step += 1).await {
                Err(error) if error.kind == Kind::Conflict => self.not_committed(request, step, error).await,
                held => held,
            },
            Tried::Failed(Failure::Retry(why)) => self.again_later(request, step, &why).await,
            Tried::Failed(Failure::Permanent(why)) => self.turn_back(request, why).await,
            Tried::Lost => Ok(Hold::Let),
        }
    }

    /// A lost race is tried again, unless it was the lease that was lost; what the rules refuse now they will refuse again.
    async fn not_committed(&self, request: Request, step: &'static Step, error: Error) -> Result<Hold> {
        match error.code {
            Error::CHANGED_MEANWHILE => self.again_later(request, step, &error.message).await,
            _ => self.turn_back(request, error.message).await,
        }
    }

    async fn back(&self, request: Request, step: &'static Step) -> Result<Hold> {
        let Undo::With(undo) = step.undo else {
            return self.commit(request, Box::new(|_| Ok(Next::Done)), |request| request.step -= 1).await;
        };
        let ctx = Context { control: &self.control, request: &request };
        let at = At { kind: request.kind, step: step.name, undo: true };
        let tried = self.tried(&request, at, || undo(ctx)).await;
        match tried {
            Tried::Acted(commit) => self.commit(request, commit, |request| request.step -= 1).await,
            // There is nothing behind an undo to turn back to: it is tried until its own deadline.
            Tried::Failed(Failure::Retry(why) | Failure::Permanent(why)) => self.again_later(request, step, &why).await,
            Tried::Lost => Ok(Hold::Let),
        }
    }

    /// One try of a step, with its limit of time and the lease being prolonged meanwhile.
    async fn tried<'a>(&self, request: &Request, at: At, act: impl Fn() -> Work<'a>) -> Tried {
        let fault = self.faults.at(at);
        match fault {
            Fault::ErrorBefore => return Tried::Failed(Failure::Retry("made to fail before".to_owned())),
            Fault::Permanent => return Tried::Failed(Failure::Permanent("made to fail for good".to_owned())),
            Fault::Twice => drop(act().await),
            Fault::None | Fault::ErrorAfter | Fault::Crash | Fault::TimeoutAfter => {}
        }
        let acted = match self.while_leased(request, self.while_it_goes_on(request, at, act())).await {
            Ok(acted) => acted,
            Err(()) => return Tried::Lost,
        };
        match (fault, acted) {
            (Fault::Crash, _) => Tried::Lost,
            (Fault::ErrorAfter, Ok(_)) => Tried::Failed(Failure::Retry("made to fail after".to_owned())),
            (Fault::TimeoutAfter, Ok(_)) => Tried::Failed(Failure::Retry("made to look too slow".to_owned())),
            (_, Ok(commit)) => Tried::Acted(commit),
            (_, Err(failure)) => Tried::Failed(failure),
        }
    }

    /// Runs a step for as long as one try may take. One that tells how far it is has that long again after each word, until the
    /// deadline of the request.
    async fn while_it_goes_on(
        &self,
        request: &Request,
        at: At,
        work: Work<'_>,
    ) -> std::result::Result<Commit, Failure> {
        let limit = self.control.settings().step_limit();
        let (mut work, mut told) = (work, 0);
        loop {
            if let Ok(acted) = tokio::time::timeout(limit, &mut work).await {
                return acted;
            }
            let (before, has_time) = (told, at.undo || self.control.clock().now() < request.deadline);
            told = self.control.progress().told(&request.id);
            if told == before {
                return Err(Failure::Retry(format!("it took longer than {} seconds", limit.as_secs())));
            }
            if !has_time {
                return Err(Failure::Retry("there was no more time".to_owned()));
            }
        }
    }

    /// Runs `work` and prolongs the lease until it is done; stops as soon as the lease is lost.
    async fn while_leased<T>(&self, request: &Request, work: impl Future<Output = T>) -> std::result::Result<T, ()> {
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

    /// Commits what a step did together with the progress of the request.
    async fn commit(&self, request: Request, commit: Commit, progress: fn(&mut Request)) -> Result<Hold> {
        let lease = self.control.settings().lease;
        let write = self.control.store().write(move |tx| -> Result<Hold> {
            let mut request = request.clone();
            let next = commit(tx)?;
            match next {
                Next::Wait => {
                    // Whatever could let it go on wakes it; otherwise its deadline does.
                    request.due = request.deadline;
                    request.status = RequestStatus::Pending;
                    (request.attempts, request.message) = (0, None);
                    requests::save(tx, &request)?;
                    requests::release(tx, &request)?;
                    return Ok(Hold::Let);
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
            match request.failure.is_none() && request.step as usize == definition.steps.len() {
                true => finish(tx, request, definition),
                false => {
                    requests::save(tx, &request)?;
                    requests::renew(tx, &request, lease)?;
                    Ok(Hold::Keep(Box::new(request)))
                }
            }
        });
        let held = write.await;
        // A commit may have woken others.
        self.control.due().notify_one();
        held
    }

    async fn complete(&self, request: Request, definition: &'static Definition) -> Result<Hold> {
        let write = self.control.store().write(move |tx| finish(tx, request.clone(), definition));
        write.await
    }

    /// Gives the request back and comes again after a pause that grows with every failure.
    async fn again_later(&self, mut request: Request, step: &'static Step, why: &str) -> Result<Hold> {
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
        write.await.map(|()| Hold::Let)
    }

    /// Begins to undo, from the present step on: it may have happened wholly, partly or not at all.
    async fn turn_back(&self, mut request: Request, why: String) -> Result<Hold> {
        request.failure = Some(why);
        request.step += 1;
        request.attempts = 0;
        request.waiting = false;
        request.status = RequestStatus::Processing;
        // What is left of an early failure must not shorten the time for undoing it.
        request.deadline = self.control.clock().now();
        let lease = self.control.settings().lease;
        let write = self.control.store().write(move |tx| -> Result<Hold> {
            requests::save(tx, &request)?;
            requests::renew(tx, &request, lease)?;
            Ok(Hold::Keep(Box::new(request.clone())))
        });
        write.await
    }

    async fn fail(&self, request: Request, definition: &'static Definition, note: Option<String>) -> Result<Hold> {
        let write = self.control.store().write(move |tx| -> Result<Hold> {
            let mut request = request.clone();
            let mut why = request.failure.clone().unwrap_or_default();
            if let Some(note) = &note {
                why = format!("{why}. {note}");
            }
            (definition.failed)(&request, tx, &why)?;
            request.status = RequestStatus::Failed;
            request.message = Some(match note_of(tx, &request, definition)? {
                Some(note) => format!("{why}. {note}."),
                None => why,
            });
            end(tx, request, "request.failed")
        });
        let ended = write.await;
        self.control.due().notify_one();
        ended
    }
}

fn finish(tx: &mut Tx<'_>, mut request: Request, definition: &Definition) -> Result<Hold> {
    request.status = RequestStatus::Completed;
    request.message = Some(match note_of(tx, &request, definition)? {
        Some(note) => format!("{} {note}.", definition.completed),
        None => definition.completed.to_owned(),
    });
    end(tx, request, "request.completed")
}

/// What the steps of a request did on the way that the caller must be told.
fn note_of(tx: &mut Tx<'_>, request: &Request, definition: &Definition) -> Result<Option<String>> {
    match definition.takes_notes {
        true => Ok(requests::note(tx, &request.id)?),
        false => Ok(None),
    }
}

fn end(tx: &mut Tx<'_>, request: Request, verb: &'static str) -> Result<Hold> {
    let ended = Hold::Ended(request.kind, request.status);
    conclude(tx, request, verb)?;
    Ok(ended)
}
