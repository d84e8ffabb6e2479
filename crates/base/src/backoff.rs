//! The growing delay between tries.

use std::time::Duration;

/// Returns how long to wait after a number of failures in a row: `first`, doubled after each further one up to
/// `longest`, minus a part of up to one half that the random `bits` choose, so that many callers do not try again at
/// the same moment. With 0 for `bits` it is the whole delay.
pub fn backoff(first: Duration, longest: Duration, failures: u32, bits: u64) -> Duration {
    let whole = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(longest);
    let half = u64::try_from(whole.as_millis() / 2).unwrap_or(u64::MAX - 1);
    whole - Duration::from_millis(bits % (half + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(15);

    #[test]
    fn delay_doubles_up_to_the_longest() {
        let delays: Vec<u128> = (0..10).map(|failures| backoff(FIRST, LONGEST, failures, 0).as_millis()).collect();
        assert_eq!(delays, [200, 200, 400, 800, 1600, 3200, 6400, 12_800, 15_000, 15_000]);
    }

    proptest! {
        #[test]
        fn delay_stays_in_its_bounds(failures: u32, bits: u64) {
            let (whole, delay) = (backoff(FIRST, LONGEST, failures, 0), backoff(FIRST, LONGEST, failures, bits));
            prop_assert!(delay >= whole / 2 && delay <= whole && whole >= FIRST && whole <= LONGEST);
        }
    }
}
