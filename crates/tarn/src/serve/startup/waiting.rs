//! Waits for what the engine cannot start without: its database, or space on its disk. Meanwhile the listeners say so,
//! and so do the log and the service manager. The start is tried again until it works or is refused for good.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tarn_server::{RefusalForm, waiting_router};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::opening::{DataLock, Opened, Stage, open_engine};
use crate::config::Config;
use crate::data::reserve;
use crate::environment::RandomIds;
use crate::failure::{Failure, Result, StartFailure, StartResult};
use crate::serve::listeners::Listeners;
use crate::serve::process::notify;
use crate::serve::wait_until_stopped;

/// The pause between two tries.
pub(in crate::serve) const PAUSE: Duration = Duration::from_secs(2);

/// How long the database may take before clients are told. Until then they wait, as at any restart.
const SILENT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a refusal may take to be sent when the wait is over.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest reason that is shown.
const MAX_REASON: usize = 400;

/// Opens the engine, as soon as that is possible. Returns `None` if the signal to stop arrived first.
pub(in crate::serve) async fn open_when_possible(
    config: &Config,
    listeners: &Listeners,
    mut lock: Option<DataLock>,
    mut signalled: Pin<&mut impl Future<Output = ()>>,
) -> Result<Option<Opened>> {
    let mut waiting = Waiting { config, listeners, servers: None };
    loop {
        let stage = Cell::new(Stage::Directory);
        let attempt = open_engine(config, listeners, &mut lock, &stage);
        let outcome = tokio::select! {
            () = signalled.as_mut() => break,
            outcome = waiting.watch(attempt, &stage) => outcome,
        };
        match outcome.map_err(|failure| reason_to_wait(config, failure)) {
            Ok(opened) => {
                waiting.end().await;
                return Ok(Some(opened));
            }
            // The start may need only little space.
            Err(Ok(_)) if reserve::is_full(&config.data) && reserve::release_reserve(&config.data) => continue,
            Err(Ok(reason)) => waiting.say(&reason)?,
            Err(Err(failure)) => {
                waiting.end().await;
                return Err(failure);
            }
        }
        tokio::select! {
            () = signalled.as_mut() => break,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    tracing::info!("stopping");
    notify::stopping();
    waiting.end().await;
    Ok(None)
}

/// Returns why it is worth waiting after this failure, or the failure if it is not.
pub(in crate::serve) fn reason_to_wait(config: &Config, failure: StartFailure) -> std::result::Result<String, Failure> {
    match failure {
        StartFailure::Temporary(message) => Ok(message),
        // Everything that the engine opens may have to be written.
        StartFailure::Final(Failure(message)) if reserve::is_full(&config.data) => {
            Ok(format!("the disk of the data directory is full: {message}"))
        }
        StartFailure::Final(failure) => Err(failure),
    }
}

/// Tells the log and the service manager what the engine waits for. Returns the text for probes.
pub(in crate::serve) fn announce(reason: &str) -> String {
    let reason = tarn_base::plain(reason, MAX_REASON).into_owned();
    tracing::warn!("the engine waits, and continues by itself: {reason}");
    notify::ready(&format!("waiting: {reason}"));
    reason
}

/// What listens while the engine waits.
struct Waiting<'c> {
    config: &'c Config,
    listeners: &'c Listeners,
    servers: Option<Servers>,
}

struct Servers {
    reason: watch::Sender<String>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<io::Result<()>>>,
}

impl Waiting<'_> {
    /// Waits for an attempt, and tells clients when the database keeps it waiting.
    async fn watch(
        &mut self,
        attempt: impl Future<Output = StartResult<Opened>>,
        stage: &Cell<Stage>,
    ) -> StartResult<Opened> {
        let mut attempt = pin!(attempt);
        tokio::select! {
            outcome = &mut attempt => return outcome,
            () = tokio::time::sleep(SILENT_TIMEOUT) => {}
        }
        if stage.get() == Stage::Database && self.servers.is_none() {
            self.say("its database has not responded yet, or is being upgraded")?;
        }
        attempt.await
    }

    /// Says what the engine waits for, unless it was said already.
    fn say(&mut self, reason: &str) -> Result<()> {
        match &self.servers {
            Some(servers) if *servers.reason.borrow() == tarn_base::plain(reason, MAX_REASON) => {}
            Some(servers) => drop(servers.reason.send_replace(announce(reason))),
            None => self.servers = Some(Servers::start(self.config, self.listeners, announce(reason))?),
        }
        Ok(())
    }

    /// Frees the listeners for the engine.
    async fn end(self) {
        if let Some(servers) = self.servers {
            servers.stop.send_replace(true);
            for task in servers.tasks {
                let _ = task.await;
            }
            tracing::info!("the wait is over");
        }
    }
}

impl Servers {
    fn start(config: &Config, listeners: &Listeners, reason: String) -> Result<Servers> {
        let (reason, stop) = (watch::Sender::new(reason), watch::Sender::new(false));
        let served = [(Some(&listeners.api), RefusalForm::Json), (listeners.s3.as_ref(), RefusalForm::S3)];
        let mut tasks = Vec::new();
        for (listener, form) in served {
            let Some(listener) = listener else { continue };
            let listener = listener.try_clone().map_err(|e| Failure::with_cause("cannot listen while waiting", e))?;
            let router = waiting_router(reason.subscribe(), Arc::new(RandomIds), form);
            let (listening, stopped) = (listeners.listening(config, None, form), wait_until_stopped(stop.subscribe()));
            tasks.push(tokio::spawn(tarn_server::serve(listener, router, listening, stopped, DRAIN_TIMEOUT)));
        }
        Ok(Servers { reason, stop, tasks })
    }
}
