//! How slow and how unreliable the fake is. All randomness comes from the seed and the number of the call, so that a
//! failed run can be repeated.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;

/// The fake's latency and faults. The default is instant and faultless.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The minimum and maximum latency of a call in milliseconds.
    pub latency_ms: (u64, u64),
    /// The fraction of changing calls that fail, from 0 to 1. Half of them fail before their effect, half after it.
    pub fault_rate: f64,
    /// The seed of all randomness.
    pub seed: u64,
}

/// Where a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Before,
    After,
}

/// The latency and the fault of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallPlan {
    /// The delay before its effect.
    pub(super) before: Duration,
    /// The delay after its effect, in which a caller may time out or die.
    pub(super) after: Duration,
    pub(super) fault: Option<Fault>,
}

impl Settings {
    /// Rejects settings that make no sense.
    pub(super) fn check(&self) -> Result<(), Error> {
        let (least, most) = self.latency_ms;
        if least > most {
            return Err(Error::Permanent(format!("latency_ms: the least, {least}, is above the most, {most}")));
        }
        if !(0.0..=1.0).contains(&self.fault_rate) {
            return Err(Error::Permanent(format!("fault_rate: {} is not between 0 and 1", self.fault_rate)));
        }
        Ok(())
    }

    /// Plans the call with this number.
    pub(super) fn plan_call(&self, call: u64) -> CallPlan {
        let mut state = scramble(self.seed).wrapping_add(scramble(!call));
        let mut chance = || {
            state = scramble(state);
            state
        };
        let (least, most) = self.latency_ms;
        let whole = least + chance() % most.saturating_sub(least).saturating_add(1);
        let before = chance() % whole.saturating_add(1);
        let fails = ((chance() >> 11) as f64 / (1u64 << 53) as f64) < self.fault_rate;
        let side = if chance() & 1 == 0 { Fault::Before } else { Fault::After };
        CallPlan {
            before: Duration::from_millis(before),
            after: Duration::from_millis(whole - before),
            fault: fails.then_some(side),
        }
    }
}

/// One step of SplitMix64. Implemented here because a generator from a crate may change its numbers with a version, and
/// a seed in a bug report must keep its meaning.
fn scramble(state: u64) -> u64 {
    let mut bits = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_plans() {
        let plans = |seed| {
            let settings = Settings { latency_ms: (2, 9), fault_rate: 0.3, seed };
            (0..1000).map(|call| settings.plan_call(call)).collect::<Vec<_>>()
        };
        assert_eq!(plans(7), plans(7));
        assert_ne!(plans(7), plans(8));
        for plan in plans(7) {
            assert!((2..=9).contains(&(plan.before + plan.after).as_millis()), "{plan:?}");
        }
        let count = |side| plans(7).iter().filter(|plan| plan.fault == Some(side)).count();
        assert!((100..200).contains(&count(Fault::Before)), "{}", count(Fault::Before));
        assert!((100..200).contains(&count(Fault::After)), "{}", count(Fault::After));
    }

    #[test]
    fn fault_rates_zero_and_one_are_exact() {
        let faults = |fault_rate| {
            let settings = Settings { fault_rate, ..Settings::default() };
            (0..1000).filter(|call| settings.plan_call(*call).fault.is_some()).count()
        };
        assert_eq!((faults(0.0), faults(1.0)), (0, 1000));
    }

    #[test]
    fn invalid_settings_are_refused() {
        assert!(Settings::default().check().is_ok());
        assert!(Settings { latency_ms: (2, 1), ..Settings::default() }.check().is_err());
        for fault_rate in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(Settings { fault_rate, ..Settings::default() }.check().is_err(), "{fault_rate}");
        }
        assert!(serde_json::from_str::<Settings>(r#"{"sead": 1}"#).is_err());
        assert_eq!(serde_json::from_str::<Settings>("{}").unwrap(), Settings::default());
    }
}
