//! One small executor with four kinds of values over two engines. Nothing outside of this folder knows which engine it is.

pub(crate) mod migrations;
mod postgres;
mod sqlite;
mod value;

pub(crate) use migrations::KNOWN;
pub(crate) use postgres::Postgres;
pub(crate) use sqlite::{Job, Sqlite};
pub use value::{Param, Row};

use crate::Result;

/// Runs statements inside of an open transaction.
pub(crate) trait Executor {
    /// Runs a query and returns all of its rows; limits are in the text of the query.
    fn query(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>>;

    /// Runs a statement and returns how many rows it changed.
    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64>;

    /// The next number of the event log. Numbers become visible in their order: a reader that has seen one will never meet
    /// a smaller one later.
    fn next_event_number(&mut self) -> Result<i64>;
}
