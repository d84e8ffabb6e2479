//! The sources of time and random bits. The composition root passes real ones; tests and simulations pass their own.

use crate::Time;
use crate::clock_jumps::Reading;

/// A source of the current time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Time;

    /// Returns what the clock of the host shows, by which the kernel dates files. It may differ from the time of an
    /// engine by any amount.
    fn file_time(&self) -> Time {
        self.now()
    }
}

/// A clock that does not jump by itself, and that can be moved to the clock that people and programs set.
pub trait Timekeeper: Clock {
    /// Returns what the clocks of the host show.
    fn read(&self) -> Reading;

    /// Moves the time by so many microseconds.
    fn shift(&self, by_us: i64);
}

/// A source of random bits that cannot be guessed and in practice never repeat, for ids, keys and jitter.
pub trait Ids: Send + Sync + 'static {
    /// Returns 64 fresh random bits.
    fn bits(&self) -> u64;
}
