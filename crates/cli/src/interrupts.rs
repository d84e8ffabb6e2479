//! Ctrl-C, a terminal that is closed, and being told to end. They are listened for from the beginning, so that none is lost between
//! two waits; whoever makes something that must not be left behind can end it properly, and a second time ends everything.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::failure::{ExitCodes, Failure, Result};

/// Whether somebody wants it to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts(watch::Receiver<bool>);

impl Interrupts {
    /// Listens from now on. What the parent lets be ignored stays so: `nohup` and background jobs of scripts mean it.
    pub(crate) fn listen() -> Result<Interrupts> {
        let ignored = ignored();
        let (pressed, seen) = watch::channel(false);
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            if ignored & (1 << (kind.as_raw_value() - 1)) == 0 {
                let signals = signal(kind).map_err(|e| Failure::doing("Ctrl-C cannot be heard", e))?;
                tokio::spawn(hear(signals, pressed.clone()));
            }
        }
        Ok(Interrupts(seen))
    }

    /// Whether it was.
    pub(crate) fn is_pressed(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when it is, or was, pressed.
    pub(crate) async fn pressed(&self) {
        if self.0.clone().wait_for(|pressed| *pressed).await.is_err() {
            // Nobody listens any more, so nobody will know.
            pending().await
        }
    }
}

async fn hear(mut signals: Signal, pressed: watch::Sender<bool>) {
    while signals.recv().await.is_some() {
        if pressed.send_replace(true) {
            // Who presses it twice does not want to wait for anything.
            std::process::exit(ExitCodes::INTERRUPTED.into());
        }
    }
}

/// The signals that this process is to ignore, a bit for each; none where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
