//! One small executor with four kinds of values over SQLite and PostgreSQL. No code outside this folder knows which
//! database is used.

mod cost;
pub(crate) mod migrations;
mod postgres;
mod sqlite;
mod value;
pub(crate) mod whole;

pub use cost::Cost;
pub(crate) use cost::TotalCost;
pub(crate) use migrations::SCHEMA_VERSION;
pub(crate) use postgres::Postgres;
pub(crate) use sqlite::{Sqlite, WriteOperation, sqlite_error};
pub use value::{Param, Row};
pub(crate) use value::{ToParam, params};

use crate::Result;

/// Runs statements inside an open transaction.
pub(crate) trait Executor {
    /// Runs a query and returns all of its rows. Limits are part of the SQL text.
    fn query(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>>;

    /// Runs a statement and returns the number of changed rows.
    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64>;

    /// Returns the next number of the event log. Numbers become visible in order: a reader that has seen one never sees
    /// a smaller one later.
    fn next_event_number(&mut self) -> Result<i64>;

    /// Lets this transaction take as long as it needs.
    fn lift_limit(&mut self) -> Result<()> {
        Ok(())
    }
}
