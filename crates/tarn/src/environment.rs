//! The real clock and real chance.

use std::time::{SystemTime, UNIX_EPOCH};

use tarn_model::{Clock, Ids, Time};

/// The machine's clock.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// Bits from a generator that the operating system seeds and that is fit for secrets.
pub(crate) struct RandomIds;

impl Ids for RandomIds {
    fn bits(&self) -> u64 {
        rand::random()
    }
}
