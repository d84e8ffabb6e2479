//! Pauses before something is tried again: short at first, and each twice as long as the one before, up to a limit.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// How long to wait next.
#[derive(Debug)]
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Pauses(FIRST)
    }
}

impl Pauses {
    /// Whether nobody has waited yet.
    pub(super) fn is_first(&self) -> bool {
        self.0 == FIRST
    }

    /// Begins with the short ones again.
    pub(super) fn reset(&mut self) {
        self.0 = FIRST;
    }

    /// Goes on with the longest: a moment later it will hardly be otherwise.
    pub(super) fn lengthen(&mut self) {
        self.0 = LONGEST;
    }

    /// Waits.
    pub(super) async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST);
    }
}
