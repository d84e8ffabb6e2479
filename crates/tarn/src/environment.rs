//! The real clock and real randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use tarn_model::{Clock, Ids, Time};

/// The clock of the host.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// Random bits from a cryptographically secure generator that the operating system seeds.
pub(crate) struct RandomIds;

impl Ids for RandomIds {
    fn bits(&self) -> u64 {
        rand::random()
    }
}
