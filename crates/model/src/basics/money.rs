//! Money in integer micro-dollars. Floating point exists only where the API shows an amount.

use std::fmt;

/// An amount in millionths of a US dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Money(i64);

impl Money {
    /// Nothing.
    pub const ZERO: Money = Money(0);

    /// Returns an amount in micro-dollars.
    pub const fn from_micros(micros: i64) -> Self {
        Money(micros)
    }

    /// Returns the amount in micro-dollars.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the amount in dollars, for display.
    pub fn as_dollars(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Converts dollars as a client writes them, rounded to micro-dollars; `None` if the amount is out of range.
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        (dollars.is_finite() && dollars.abs() <= 1e12).then(|| Money((dollars * 1e6).round() as i64))
    }

    /// Multiplies the amount; saturates, because prices are shown before anything is refused.
    pub fn times(self, count: u64) -> Self {
        Money(self.0.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)))
    }

    /// Returns the hourly price of `gb` gigabytes at `per_gb_month`; a month has 730 hours. Rounded up, so that it is
    /// never free.
    pub fn hourly_for_gb(per_gb_month: Money, gb: u64) -> Self {
        let monthly = i128::from(per_gb_month.0) * i128::from(gb);
        Money(i64::try_from(monthly.div_euclid(730) + i128::from(monthly.rem_euclid(730) > 0)).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let micros = self.0.unsigned_abs();
        let text = format!("{:06}", micros % 1_000_000);
        let cents = text.trim_end_matches('0');
        write!(f, "{sign}${}.{cents:0<2}", micros / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_shows_at_least_cents() {
        assert_eq!(Money::from_micros(1_990_000).to_string(), "$1.99");
        assert_eq!(Money::from_micros(-15_000).to_string(), "-$0.015");
        assert_eq!(Money::ZERO.to_string(), "$0.00");
    }

    #[test]
    fn storage_price_is_rounded_up() {
        assert_eq!(Money::hourly_for_gb(Money::from_micros(100_000), 100), Money::from_micros(13_699));
        assert_eq!(Money::hourly_for_gb(Money::from_micros(100_000), u64::MAX), Money::from_micros(i64::MAX));
    }

    #[test]
    fn from_dollars_refuses_out_of_range() {
        assert_eq!(Money::from_dollars(f64::NAN), None);
        assert_eq!(Money::from_dollars(1e300), None);
        assert_eq!(Money::from_dollars(0.1), Some(Money::from_micros(100_000)));
    }
}
