//! Ctrl-C, SIGTERM and SIGHUP. They are caught from the start, so that none is lost between two waits and a command can
//! clean up. A second signal ends the program at once.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::failure::{ExitCodes, Failure, Result};

/// Whether the user wants the program to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts(watch::Receiver<bool>);

impl Interrupts {
    /// Starts to catch the signals. Signals that the parent set to be ignored stay ignored, as `nohup` expects.
    pub(crate) fn listen() -> Result<Interrupts> {
        let ignored = ignored_signals();
        let (pressed, seen) = watch::channel(false);
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            if ignored & (1 << (kind.as_raw_value() - 1)) == 0 {
                let signals = signal(kind).map_err(|e| Failure::with_cause("cannot catch Ctrl-C", e))?;
                tokio::spawn(forward_signals(signals, pressed.clone()));
            }
        }
        Ok(Interrupts(seen))
    }

    /// Whether a signal has arrived.
    pub(crate) fn is_pressed(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns as soon as a signal has arrived.
    pub(crate) async fn pressed(&self) {
        if self.0.clone().wait_for(|pressed| *pressed).await.is_err() {
            // No signal is caught any more, so none will arrive.
            pending().await
        }
    }
}

async fn forward_signals(mut signals: Signal, pressed: watch::Sender<bool>) {
    while signals.recv().await.is_some() {
        if pressed.send_replace(true) {
            // A second signal: do not wait for any cleanup.
            std::process::exit(ExitCodes::INTERRUPTED.into());
        }
    }
}

/// The mask of ignored signals; 0 if it cannot be read.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
