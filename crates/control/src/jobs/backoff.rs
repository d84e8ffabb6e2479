//! The delay between tries of a job: short at first, doubled after each try up to a limit.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// The number of delays so far.
#[derive(Debug, Default)]
pub(super) struct Backoff(u32);

impl Backoff {
    /// Returns whether the next delay is the first one.
    pub(super) fn is_first(&self) -> bool {
        self.0 == 0
    }

    /// Starts again with the shortest delay.
    pub(super) fn reset(&mut self) {
        self.0 = 0;
    }

    /// Continues with the longest delay, for failures that a short one does not resolve.
    pub(super) fn use_longest(&mut self) {
        self.0 = u32::MAX;
    }

    /// Sleeps for the next delay.
    pub(super) async fn sleep(&mut self) {
        self.0 = self.0.saturating_add(1);
        tokio::time::sleep(tarn_base::backoff(FIRST, LONGEST, self.0, 0)).await;
    }
}
