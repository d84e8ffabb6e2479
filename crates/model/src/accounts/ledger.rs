//! The ledger: append-only, double entry, in micro-dollars. A transfer moves money between accounts and sums to zero.

use crate::Money;

/// An account: the balance of an organization or a user, or one of the engine's own accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account(String);

impl Account {
    /// Returns the account that grants come from.
    pub fn grants() -> Self {
        Account("engine:grants".to_owned())
    }

    /// Returns the balance account of an organization, or of a user without one.
    pub fn balance_of(scope: &str) -> Self {
        Account(format!("balance:{scope}"))
    }

    /// Returns the name that the database stores.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Money that moves from one account to another. The type guarantees that the entries sum to zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub from: Account,
    pub to: Account,
    /// Never negative.
    pub amount: Money,
    pub description: String,
}

impl Transfer {
    /// Returns a grant of balance by the operator; a negative amount takes balance back.
    pub fn grant(scope: &str, amount: Money, description: String) -> Self {
        let (engine, balance) = (Account::grants(), Account::balance_of(scope));
        if amount >= Money::ZERO {
            Transfer { from: engine, to: balance, amount, description }
        } else {
            Transfer { from: balance, to: engine, amount: Money::from_micros(-amount.as_micros()), description }
        }
    }

    /// Returns the two entries to write.
    pub fn entries(&self) -> [(&Account, Money); 2] {
        [(&self.from, Money::from_micros(-self.amount.as_micros())), (&self.to, self.amount)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn every_transfer_sums_to_zero(micros in -1_000_000_000_000_000i64..1_000_000_000_000_000) {
            let transfer = Transfer::grant("o-1", Money::from_micros(micros), String::new());
            proptest::prop_assert_eq!(transfer.entries().iter().map(|(_, amount)| amount.as_micros()).sum::<i64>(), 0);
            let received = transfer.entries().into_iter().find(|(account, _)| account.as_str() == "balance:o-1").unwrap().1;
            proptest::prop_assert_eq!(received.as_micros(), micros);
        }
    }
}
