//! For tests of the crates above this one: a clock that tests set, and ids from a seed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock_jumps::Reading;
use crate::{Clock, Ids, Time, Timekeeper};

/// Where [`ManualClock`] begins.
const BEGIN_US: i64 = 1_800_000_000_000_000;

/// A clock that advances only when a test says so.
pub struct ManualClock {
    now: AtomicI64,
    /// How far the clock that people set has jumped in all, and how far the time has followed it.
    jumped: AtomicI64,
    shifted: AtomicI64,
}

impl Default for ManualClock {
    fn default() -> Self {
        ManualClock { now: AtomicI64::new(BEGIN_US), jumped: AtomicI64::new(0), shifted: AtomicI64::new(0) }
    }
}

impl ManualClock {
    /// Advances the clock.
    pub fn advance(&self, span: Duration) {
        self.move_to(self.now().after(span));
    }

    /// Advances the clock to `time`; does nothing when that has passed.
    pub fn move_to(&self, time: Time) {
        self.now.fetch_max(time.as_micros(), Ordering::SeqCst);
    }

    /// Lets the clock that people set jump. The time itself goes on.
    pub fn jump(&self, by_us: i64) {
        self.jumped.fetch_add(by_us, Ordering::SeqCst);
    }

    /// Sets the clock back, as if another replica with a clock that is behind read it.
    pub fn set_back(&self, span: Duration) {
        self.now.fetch_sub(span.as_micros() as i64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        // Each reading advances the clock by a microsecond, so that rows written one after the other have an order.
        Time::from_micros(self.now.fetch_add(1, Ordering::SeqCst))
    }

    fn file_time(&self) -> Time {
        self.read().set
    }
}

impl Timekeeper for ManualClock {
    fn read(&self) -> Reading {
        let now = self.now();
        let passed = now.as_micros() - self.shifted.load(Ordering::SeqCst);
        let set = Time::from_micros(passed + self.jumped.load(Ordering::SeqCst));
        Reading { now, set, up_us: passed - BEGIN_US, boot: "manual".to_owned() }
    }

    fn shift(&self, by_us: i64) {
        self.shifted.fetch_add(by_us, Ordering::SeqCst);
        self.now.fetch_add(by_us, Ordering::SeqCst);
    }
}

/// Ids from a seed (splitmix64).
pub struct SeededIds(AtomicU64);

impl SeededIds {
    /// The same seed gives the same ids.
    pub fn new(seed: u64) -> Self {
        SeededIds(AtomicU64::new(seed))
    }
}

impl Ids for SeededIds {
    fn bits(&self) -> u64 {
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
