//! Waiting through a while in which the engine cannot be reached: it may be restarting, and what is waited for goes on meanwhile.

use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::waits::Progress;

/// The pause after the first break; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// How often in a row it is tried, which are about two minutes where nobody listens.
const MAX_BREAKS: u32 = 28;

/// Whether it is worth to go on. Who never answered is not waited for: the address may be wrong.
#[derive(Default)]
pub(crate) struct Patience {
    has_worked: bool,
    breaks: u32,
}

impl Patience {
    /// Whether one ever did.
    pub(crate) fn has_worked(&self) -> bool {
        self.has_worked
    }

    /// An answer came.
    pub(crate) fn worked(&mut self) {
        *self = Patience { has_worked: true, breaks: 0 };
    }

    /// Pauses after a failure that may be over in a while, and gives every other one back.
    pub(crate) async fn bear(&mut self, failure: Failure, progress: &Progress) -> Result<()> {
        if !self.has_worked || !failure.is_passing() || self.breaks >= MAX_BREAKS {
            return Err(failure);
        }
        progress.tell(&format!("Tries again: {failure}"));
        let pause = FIRST_PAUSE.saturating_mul(1 << self.breaks.min(8)).min(MAX_PAUSE);
        self.breaks += 1;
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_passes_is_borne_and_not_for_ever() {
        let (mut patience, progress) = (Patience::default(), Progress::hidden());
        assert!(patience.bear(Failure::passing("gone"), &progress).await.is_err(), "nobody ever answered");
        patience.worked();
        assert!(patience.bear(Failure::new("no"), &progress).await.is_err());
        let began = tokio::time::Instant::now();
        while patience.bear(Failure::passing("gone"), &progress).await.is_ok() {}
        assert!((60..300).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
}
