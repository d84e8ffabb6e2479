//! The sources of time and random bits. The composition root passes real ones; tests and simulations pass their own.

use crate::Time;

/// A source of the current time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Time;
}

/// A source of random bits that cannot be guessed and in practice never repeat, for ids, keys and jitter.
pub trait Ids: Send + Sync + 'static {
    /// Returns 64 fresh random bits.
    fn bits(&self) -> u64;
}
