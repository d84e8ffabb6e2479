//! What the outside gives: the time and chance. The composition root passes real ones, tests and simulations their own.

use crate::Time;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Time;
}

/// Gives bits that nobody can guess and that never repeat in practice: the stuff of ids, keys and jitter.
pub trait Ids: Send + Sync + 'static {
    /// 64 fresh random bits.
    fn bits(&self) -> u64;
}
