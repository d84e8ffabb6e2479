//! What the engine does besides serving calls: the runner, the dispatcher of jobs and the reconcilers. They begin when
//! the work of the previous run was resumed. Until then the engine serves what only reads, and probes are told why.

use std::future::pending;

use tarn_control::jobs::dispatch::Dispatcher;
use tarn_control::reconcilers::clock::ClockWatch;
use tarn_control::runner::Runner;
use tarn_control::{Control, reconcilers};
use tarn_server::App;
use tarn_store::Database;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::process::notify;
use super::startup::waiting::{PAUSE, announce, reason_to_wait};
use super::{DRAIN_TIMEOUT, reconciler_loops, wait_until_stopped};
use crate::config::Config;
use crate::data::reserve;
use crate::failure::{Failure, Result, StartFailure, StartResult};

/// The tasks.
pub(super) struct Workers {
    pub(super) runner: JoinHandle<()>,
    pub(super) dispatcher: JoinHandle<()>,
    reconcilers: JoinHandle<()>,
    preparing: JoinHandle<Result<()>>,
    prepared: watch::Receiver<bool>,
}

/// What resumes the work of the previous run.
struct Preparation {
    config: Config,
    control: Control,
    app: App,
    runner: Runner,
    dispatcher: Dispatcher,
    is_only_engine: bool,
}

impl Workers {
    /// Resumes the work of the previous run, and begins to work. If something that is temporary prevents the first, it
    /// is tried again in the background.
    pub(super) async fn start(
        config: &Config,
        control: &Control,
        clock_watch: ClockWatch,
        app: App,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Workers> {
        let preparation = Preparation {
            config: config.clone(),
            control: control.clone(),
            app,
            runner: Runner::new(control.clone()),
            dispatcher: Dispatcher::new(control.clone()),
            is_only_engine: matches!(config.database()?, Database::Sqlite(_)),
        };
        let first = preparation.try_now(None).await?;
        let (start_runner, runner) = oneshot::channel::<Runner>();
        let (start_dispatcher, dispatcher) = oneshot::channel::<Dispatcher>();
        let (say_prepared, prepared) = watch::channel(first.is_none());
        let mut stop = stopped.clone();
        let preparing = tokio::spawn(async move {
            tokio::select! {
                ready = preparation.wait(first) => {
                    let Preparation { runner, dispatcher, .. } = ready?;
                    let _ = (start_runner.send(runner), start_dispatcher.send(dispatcher));
                    say_prepared.send_replace(true);
                    Ok(())
                }
                _ = stop.wait_for(|stopped| *stopped) => Ok(()),
            }
        });
        let (runner_stop, dispatcher_stop) = (wait_until_stopped(stopped.clone()), wait_until_stopped(stopped.clone()));
        // A sender is dropped only when the engine stops or the preparation failed for good.
        let runner = tokio::spawn(async move {
            if let Ok(runner) = runner.await {
                runner.serve(runner_stop, DRAIN_TIMEOUT).await;
            }
        });
        let dispatcher = tokio::spawn(async move {
            if let Ok(dispatcher) = dispatcher.await {
                dispatcher.serve(dispatcher_stop, DRAIN_TIMEOUT).await;
            }
        });
        let (control, mut ready) = (control.clone(), prepared.clone());
        let reconcilers = tokio::spawn(async move {
            if ready.wait_for(|ready| *ready).await.is_ok() {
                reconciler_loops::run_reconcilers(control, clock_watch).await;
            }
        });
        Ok(Workers { runner, dispatcher, reconcilers, preparing, prepared })
    }

    /// Whether the work of the previous run was resumed.
    pub(super) fn are_prepared(&self) -> bool {
        *self.prepared.borrow()
    }

    /// Returns when a task ended that should not.
    pub(super) async fn fail(&mut self) -> Failure {
        let prepare = async {
            match (&mut self.preparing).await {
                Ok(Ok(())) => pending().await,
                Ok(Err(failure)) => failure,
                Err(error) => Failure(format!("the preparation stopped unexpectedly: {error:?}")),
            }
        };
        tokio::select! {
            biased;
            failure = prepare => failure,
            ended = &mut self.reconcilers => Failure(format!("the reconcilers stopped unexpectedly: {ended:?}")),
            ended = &mut self.runner => Failure(format!("the runner stopped unexpectedly: {ended:?}")),
            ended = &mut self.dispatcher => Failure(format!("the job dispatcher stopped unexpectedly: {ended:?}")),
        }
    }
}

impl Preparation {
    /// Tries until it works. `reason` is why the first try did not.
    async fn wait(self, mut reason: Option<String>) -> Result<Preparation> {
        if reason.is_some() {
            while reason.is_some() {
                tokio::time::sleep(PAUSE).await;
                reason = self.try_now(reason).await?;
            }
            self.app.set_waiting(None);
            notify::ready("serving");
            tracing::info!("the wait is over");
        }
        reserve::keep_reserve(&self.config.data);
        Ok(self)
    }

    /// Tries once. Returns why it is worth trying again, and tells it unless it is what was `told`.
    async fn try_now(&self, told: Option<String>) -> Result<Option<String>> {
        let Err(failure) = self.resume().await else { return Ok(None) };
        let reason = reason_to_wait(&self.config, failure)?;
        if told.as_ref() != Some(&reason) {
            self.app.set_waiting(Some(announce(&reason)));
        }
        Ok(Some(reason))
    }

    async fn resume(&self) -> StartResult<()> {
        if self.is_only_engine && reserve::is_full(&self.config.data) {
            let shown = self.config.data.display();
            return Err(StartFailure::Temporary(format!(
                "less than {} KiB are free on the disk of {shown}; free some space",
                reserve::MIN_FREE_BYTES >> 10
            )));
        }
        // The health of the GPUs must be known before anything is placed.
        let ticked = reconcilers::gpus::tick(&self.control).await;
        ticked.map_err(|e| StartFailure::with_cause("cannot check the GPUs", e))?;
        // Requests without a deadline would fail as soon as the runner takes them.
        let given = reconcilers::reboots::extend_deadlines(&self.control).await;
        given.map_err(|e| StartFailure::with_cause("cannot determine whether the host was restarted", e))?;
        if let Err(error) = reconcilers::reboots::recover(&self.control).await {
            // The reconciler tries again every few seconds.
            tracing::warn!(cause = ?error.cause, "cannot determine whether the host was restarted: {error}");
        }
        let recovered = async {
            self.runner.recover(self.is_only_engine).await?;
            self.dispatcher.recover(self.is_only_engine).await
        };
        let failed = |e| StartFailure::with_cause("cannot resume the requests and jobs of the previous run", e);
        recovered.await.map_err(failed)
    }
}
