//! What the transactions of a process cost its database. A transaction counts in plain numbers and adds them once, when
//! it ends, so that counting costs nothing that can be measured.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a process has asked of its database since it opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The statements that ran, except those that begin and end transactions.
    pub statements: u64,
    /// The rows that were returned.
    pub rows: u64,
    /// The instructions of SQLite's virtual machine, which grow with the rows that a statement looks at, even if it
    /// returns none of them. PostgreSQL reports nothing like it; there it is 0.
    pub steps: u64,
}

/// The sum over all transactions.
#[derive(Debug, Default)]
pub(crate) struct TotalCost {
    statements: AtomicU64,
    rows: AtomicU64,
    steps: AtomicU64,
}

impl TotalCost {
    /// Adds what a transaction has cost.
    pub(crate) fn add(&self, cost: Cost) {
        // No other memory is published with these numbers.
        self.statements.fetch_add(cost.statements, Ordering::Relaxed);
        self.rows.fetch_add(cost.rows, Ordering::Relaxed);
        self.steps.fetch_add(cost.steps, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Cost {
        Cost {
            statements: self.statements.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
        }
    }
}
