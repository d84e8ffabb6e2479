//! Retries with growing pauses while the engine cannot be reached: it may be restarting, and requests continue after
//! that.

use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::terminal::progress::Progress;

/// The first pause; it doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The maximum number of failures in a row: about two minutes when connections are refused.
const MAX_FAILURES: u32 = 28;

/// The failures in a row. Before the first success no failure is retried, because the address may be wrong.
#[derive(Default)]
pub(crate) struct Backoff {
    has_succeeded: bool,
    failures: u32,
}

impl Backoff {
    /// Whether a call has ever succeeded.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.has_succeeded
    }

    /// Resets the count after a successful call.
    pub(crate) fn record_success(&mut self) {
        *self = Backoff { has_succeeded: true, failures: 0 };
    }

    /// Pauses after a temporary failure, and returns every other failure.
    pub(crate) async fn wait_after(&mut self, failure: Failure, progress: &Progress) -> Result<()> {
        if !self.has_succeeded || !failure.is_temporary() || self.failures >= MAX_FAILURES {
            return Err(failure);
        }
        progress.set_message(&format!("Retrying: {failure}"));
        self.failures += 1;
        tokio::time::sleep(tarn_base::backoff(FIRST_PAUSE, MAX_PAUSE, self.failures, 0)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn temporary_failures_are_retried_for_a_while() {
        let (mut backoff, progress) = (Backoff::default(), Progress::hidden());
        assert!(backoff.wait_after(Failure::temporary("gone"), &progress).await.is_err(), "no call has succeeded yet");
        backoff.record_success();
        assert!(backoff.wait_after(Failure::new("no"), &progress).await.is_err());
        let began = tokio::time::Instant::now();
        while backoff.wait_after(Failure::temporary("gone"), &progress).await.is_ok() {}
        assert!((60..300).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
}
