//! Points in time as whole microseconds since 1970, which is also how the database stores them.

use std::fmt;
use std::time::Duration;

/// A point in time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// Before everything that can happen; used for "already due".
    pub const ZERO: Time = Time(0);

    /// Returns the point `micros` microseconds after the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Time(micros)
    }

    /// Returns the microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns this point moved into the future; a span too long to represent ends at the last representable point.
    pub fn after(self, span: Duration) -> Self {
        Time(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns this point moved into the past.
    pub fn before(self, span: Duration) -> Self {
        Time(self.0.saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the time from `now` until this point; zero when it has passed.
    pub fn until(self, now: Time) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(now.0)).unwrap_or(0))
    }
}

/// RFC 3339 in UTC with whole seconds, as the API shows it.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.0.div_euclid(1_000_000)) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => f.write_str("out of range"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_shows_utc_seconds() {
        assert_eq!(Time::from_micros(1_794_774_000_999_999).to_string(), "2026-11-15T20:20:00Z");
        assert_eq!(Time::from_micros(i64::MAX).to_string(), "out of range");
    }

    #[test]
    fn time_arithmetic_saturates() {
        assert_eq!(Time::from_micros(i64::MAX).after(Duration::from_secs(1)), Time::from_micros(i64::MAX));
        assert_eq!(Time::from_micros(5).until(Time::from_micros(9)), Duration::ZERO);
    }
}
