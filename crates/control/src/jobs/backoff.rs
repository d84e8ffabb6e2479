//! The delay between tries: short at first, doubled after each try up to a limit.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// The next delay.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Backoff(FIRST)
    }
}

impl Backoff {
    /// Returns whether the next delay is the first one.
    pub(super) fn is_first(&self) -> bool {
        self.0 == FIRST
    }

    /// Starts again with the shortest delay.
    pub(super) fn reset(&mut self) {
        self.0 = FIRST;
    }

    /// Continues with the longest delay, for failures that a short one does not resolve.
    pub(super) fn use_longest(&mut self) {
        self.0 = LONGEST;
    }

    /// Sleeps for the next delay, and doubles it.
    pub(super) async fn sleep(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST);
    }
}
