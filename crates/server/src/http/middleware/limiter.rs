//! The rate limit: a token bucket per API key.

use std::num::NonZeroU32;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tarn_model::ids::ApiKeyId;

use crate::Limits;

/// Limits the rate of calls per key.
pub(crate) struct Limiter {
    /// `None` when there is no limit.
    buckets: Option<DefaultKeyedRateLimiter<ApiKeyId>>,
    clock: DefaultClock,
}

impl Limiter {
    /// Returns a limiter with full buckets.
    pub(crate) fn new(limits: Limits) -> Self {
        let quota = NonZeroU32::new(limits.per_second)
            .map(|rate| Quota::per_second(rate).allow_burst(NonZeroU32::new(limits.burst).unwrap_or(rate)));
        Limiter { buckets: quota.map(RateLimiter::keyed), clock: DefaultClock::default() }
    }

    /// Takes a token, or returns after how many seconds one is available.
    pub(crate) fn take_token(&self, key: &ApiKeyId) -> Result<(), u64> {
        let Some(buckets) = &self.buckets else { return Ok(()) };
        buckets.check_key(key).map_err(|refused| {
            let wait = refused.wait_time_from(self.clock.now());
            (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
        })
    }

    /// Drops the buckets that are full again: a missing bucket has the same effect.
    pub(crate) fn forget_idle(&self) {
        if let Some(buckets) = &self.buckets {
            buckets.retain_recent();
            buckets.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each key has its own limit.
    #[test]
    fn keys_are_limited_separately() {
        let limiter = Limiter::new(Limits { per_second: 1, burst: 2, ..Limits::default() });
        let (one, other) = ("a-000000000001".parse().unwrap(), "a-000000000002".parse().unwrap());
        assert_eq!((limiter.take_token(&one), limiter.take_token(&one)), (Ok(()), Ok(())));
        assert_eq!(limiter.take_token(&one), Err(1));
        assert_eq!(limiter.take_token(&other), Ok(()));
    }

    #[test]
    fn zero_rate_is_no_limit() {
        let limiter = Limiter::new(Limits { per_second: 0, burst: 1, ..Limits::default() });
        let key = "a-000000000001".parse().unwrap();
        assert!((0..1000).all(|_| limiter.take_token(&key).is_ok()));
    }
}
