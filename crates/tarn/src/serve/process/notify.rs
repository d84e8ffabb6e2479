//! What the engine tells the service manager: systemd, if the unit has `Type=notify`. Without a service manager that
//! listens, nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;

/// Tells that the engine serves, or that it waits for something that it cannot start without. `text` says which;
/// `systemctl status` shows it.
pub(crate) fn ready(text: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(text)]);
}

/// Tells what the engine does or waits for.
pub(crate) fn status(text: &str) {
    send(&[NotifyState::Status(text)]);
}

/// Tells that the engine ends.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// Keeps telling the service manager that the engine lives, if the unit has `WatchdogSec=`. It runs as a task of the
/// runtime that serves, and each time another task of that runtime has to run before the message is sent. So a runtime
/// that is stuck sends none, and the service manager starts the engine anew.
pub(crate) fn start_watchdog() {
    if let Some(timeout) = sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero()) {
        tokio::spawn(keep_alive(timeout, || send(&[NotifyState::Watchdog])));
    }
}

/// Calls `tell` several times within each `timeout`, as long as the runtime runs its tasks.
async fn keep_alive(timeout: Duration, tell: impl Fn()) {
    loop {
        // A task that was spawned here may run on another thread, and runs after those that wait already.
        if tokio::spawn(tokio::task::yield_now()).await.is_ok() {
            tell();
        }
        tokio::time::sleep(timeout / 4).await;
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, RecvTimeoutError};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(40);

    /// A runtime whose only thread is blocked does not claim that it lives; when it is free again, it does.
    #[test]
    fn blocked_runtime_is_silent() {
        let (told, tells) = mpsc::channel();
        let (release, blocked) = mpsc::channel::<()>();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        runtime.spawn(keep_alive(TIMEOUT, move || told.send(()).unwrap_or_default()));
        let wait = Duration::from_secs(20);
        tells.recv_timeout(wait).unwrap();
        let (entered, entry) = mpsc::channel();
        runtime.spawn(async move {
            entered.send(()).unwrap();
            let _ = blocked.recv();
        });
        entry.recv_timeout(wait).unwrap();
        while tells.try_recv().is_ok() {}
        assert_eq!(tells.recv_timeout(TIMEOUT * 5), Err(RecvTimeoutError::Timeout));
        drop(release);
        tells.recv_timeout(wait).unwrap();
    }
}
