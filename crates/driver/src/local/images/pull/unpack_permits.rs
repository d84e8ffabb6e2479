//! Permits to unpack: a few layers at once, of all images together. A slow transfer moves to a separate set of permits,
//! so that one slow registry does not delay the others. These are no shares of keys: only the rate decides.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Error;

/// How many layers are unpacked at once.
const FAST_PERMITS: usize = 3;

/// How many more slow transfers may run beside them.
const SLOW_PERMITS: usize = 8;

/// The window over which the rate is measured. Only time spent waiting for the registry counts, not time spent writing
/// to disk.
const RATE_WINDOW: Duration = Duration::from_secs(60);

/// Below the first rate, in bytes per second, a transfer is slow; below the second it is aborted.
const SLOW_RATE: u64 = 1 << 20;
pub(super) const MIN_RATE: u64 = 64 << 10;

/// The permits of all pulls.
pub(in crate::local::images) struct UnpackPermits {
    fast: Semaphore,
    slow: Semaphore,
}

/// A permit to unpack one layer, released when dropped.
pub(super) struct UnpackPermit<'a> {
    permits: &'a UnpackPermits,
    semaphore_permit: SemaphorePermit<'a>,
    is_slow: bool,
    waited: Duration,
    received: u64,
}

/// Why a slow transfer is aborted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TooSlow {
    /// It is below the minimum rate.
    BelowMinimumRate,
    /// There are too many slow transfers.
    TooManySlowTransfers,
}

impl Default for UnpackPermits {
    fn default() -> Self {
        UnpackPermits { fast: Semaphore::new(FAST_PERMITS), slow: Semaphore::new(SLOW_PERMITS) }
    }
}

impl UnpackPermits {
    /// Returns a permit if one is free.
    pub(super) fn try_acquire_permit(&self) -> Option<UnpackPermit<'_>> {
        self.fast.try_acquire().ok().map(|semaphore_permit| self.new_permit(semaphore_permit))
    }

    /// Waits for a permit.
    pub(super) async fn acquire_permit(&self) -> Result<UnpackPermit<'_>, Error> {
        let semaphore_permit = self.fast.acquire().await.map_err(|_| Error::Retry("the engine is stopping".into()))?;
        Ok(self.new_permit(semaphore_permit))
    }

    fn new_permit<'a>(&'a self, semaphore_permit: SemaphorePermit<'a>) -> UnpackPermit<'a> {
        UnpackPermit { permits: self, semaphore_permit, is_slow: false, waited: Duration::ZERO, received: 0 }
    }
}

impl UnpackPermit<'_> {
    /// Records received bytes and the time spent waiting for them. A slow transfer exchanges its permit for a slow one.
    pub(super) fn record_transfer(&mut self, bytes: u64, waited: Duration) -> Result<(), TooSlow> {
        self.received += bytes;
        self.waited += waited;
        if self.waited < RATE_WINDOW {
            return Ok(());
        }
        let rate = std::mem::take(&mut self.received) / std::mem::take(&mut self.waited).as_secs().max(1);
        if rate < MIN_RATE {
            return Err(TooSlow::BelowMinimumRate);
        }
        if rate < SLOW_RATE && !self.is_slow {
            self.semaphore_permit = self.permits.slow.try_acquire().map_err(|_| TooSlow::TooManySlowTransfers)?;
            self.is_slow = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow transfer releases its fast permit, and one below the minimum rate is aborted.
    #[test]
    fn slow_transfer_releases_its_permit() {
        let permits = UnpackPermits::default();
        let minute = |permit: &mut UnpackPermit<'_>, rate: u64| permit.record_transfer(rate * 60, RATE_WINDOW);
        let mut slow = Vec::new();
        for _ in 0..SLOW_PERMITS {
            let mut permit = permits.try_acquire_permit().unwrap();
            assert_eq!(minute(&mut permit, SLOW_RATE - 1), Ok(()));
            assert_eq!(minute(&mut permit, MIN_RATE), Ok(()), "it has a slow permit already");
            slow.push(permit);
        }
        let mut fast: Vec<_> = (0..FAST_PERMITS)
            .map(|_| permits.try_acquire_permit().expect("slow transfers hold no fast permit"))
            .collect();
        assert!(permits.try_acquire_permit().is_none());
        assert_eq!(
            fast[0].record_transfer(0, RATE_WINDOW / 2),
            Ok(()),
            "the rate is not checked before the window ends"
        );
        assert_eq!(minute(&mut fast[1], SLOW_RATE), Ok(()));
        assert_eq!(minute(&mut fast[1], SLOW_RATE - 1), Err(TooSlow::TooManySlowTransfers));
        assert_eq!(minute(&mut fast[2], MIN_RATE - 1), Err(TooSlow::BelowMinimumRate));
        slow.pop();
        assert_eq!(minute(&mut fast[1], SLOW_RATE - 1), Ok(()));
        assert!(permits.try_acquire_permit().is_some());
    }
}
