//! The real clocks and real randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tarn_model::clock_jumps::Reading;
use tarn_model::{Clock, Ids, Time, Timekeeper};

/// The clock of the host, which people and programs set.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// The time of the engine: it goes on as the host is on, also while that sleeps, and is moved only by the engine.
pub(crate) struct EngineClock {
    state: Mutex<ClockState>,
    boot: String,
}

struct ClockState {
    /// What is added to the count of the host.
    offset_us: i64,
    /// The last time that was shown: a small correction must not turn time back.
    shown_us: i64,
}

impl EngineClock {
    /// Creates a clock that shows the time of the host.
    pub(crate) fn new() -> EngineClock {
        let now = SystemClock.now().as_micros();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let state = Mutex::new(ClockState { offset_us: now - up_us(), shown_us: now });
        EngineClock { state, boot: boot.trim().to_owned() }
    }
}

impl Clock for EngineClock {
    fn now(&self) -> Time {
        let mut state = self.state.lock();
        state.shown_us = state.shown_us.max(up_us().saturating_add(state.offset_us));
        Time::from_micros(state.shown_us)
    }

    fn file_time(&self) -> Time {
        SystemClock.now()
    }
}

impl Timekeeper for EngineClock {
    fn read(&self) -> Reading {
        Reading { up_us: up_us(), now: self.now(), set: SystemClock.now(), boot: self.boot.clone() }
    }

    fn shift(&self, by_us: i64) {
        let mut state = self.state.lock();
        state.offset_us = state.offset_us.saturating_add(by_us);
        if by_us < -SMALL_US {
            // A jump. What was shown before it does not count any more.
            state.shown_us = i64::MIN;
        }
    }
}

/// Larger steps back are jumps.
const SMALL_US: i64 = 1_000_000;

/// How long the host has been on. Nothing sets this clock.
fn up_us() -> i64 {
    let up = clock_gettime(ClockId::Boottime);
    up.tv_sec.saturating_mul(1_000_000).saturating_add(up.tv_nsec / 1000)
}

/// Random bits from a cryptographically secure generator that the operating system seeds.
pub(crate) struct RandomIds;

impl Ids for RandomIds {
    fn bits(&self) -> u64 {
        rand::random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time goes on, and a small correction does not turn it back.
    #[test]
    fn engine_time_is_not_turned_back() {
        let clock = EngineClock::new();
        let first = clock.now();
        assert!(first.until(SystemClock.now()).as_secs() < 2 && SystemClock.now().until(first).as_secs() < 2);
        clock.shift(-500_000);
        assert!(clock.now() >= first);
        clock.shift(-3_600_000_000);
        assert!(clock.now() < first, "a jump does");
        clock.shift(7_200_000_000);
        assert!(clock.read().ahead_us() < -3_000_000_000);
        assert!(clock.file_time().until(SystemClock.now()).as_secs() < 2, "files have the dates of the host");
    }
}
