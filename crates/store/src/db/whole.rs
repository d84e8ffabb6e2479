//! A database that one command reads or writes as a whole, while no engine uses it.

use std::collections::BTreeSet;

use super::migrations::Shape;
use super::value::Value;
use super::{postgres, sqlite};
use crate::{Database, Result};

/// The values of one row.
pub(crate) type Values = Vec<Value>;

/// The number of rows that are in memory at a time.
pub(crate) const PAGE_ROWS: usize = 200;

/// An open database, in one transaction: a reader sees one state, and what a writer wrote is there as a whole after
/// [`publish`](Self::publish), or not at all.
pub(crate) trait WholeDatabase: Send {
    /// Runs statements without parameters.
    fn run(&mut self, sql: &str) -> Result<()>;

    /// Returns the columns and indexes, by name.
    fn shape(&mut self) -> Result<Shape>;

    /// Runs a query, and passes on its rows in pages.
    fn scan(&mut self, sql: &str, take: &mut dyn FnMut(Vec<Values>) -> Result<()>) -> Result<()>;

    /// Inserts rows.
    fn insert(&mut self, sql: &str, rows: &[Values]) -> Result<()>;

    /// Looks for damage, as far as the database can find it by itself.
    fn check_integrity(&mut self) -> Result<()>;

    /// Makes what was written durable and visible.
    fn publish(&mut self) -> Result<()>;
}

/// Opens a database to read all of it. An error if an engine uses it. Nothing is changed, and nothing else can change
/// it while this value lives.
pub(crate) async fn open_source(database: &Database) -> Result<Box<dyn WholeDatabase>> {
    Ok(match database {
        Database::Sqlite(path) => Box::new(sqlite::WholeFile::open_source(path)?),
        Database::Postgres(url) => Box::new(postgres::WholeServer::open_source(url).await?),
    })
}

/// Opens an empty database to write all of it. An error if anything is in it.
pub(crate) async fn open_target(database: &Database) -> Result<Box<dyn WholeDatabase>> {
    Ok(match database {
        Database::Sqlite(path) => Box::new(sqlite::WholeFile::create_target(path)?),
        Database::Postgres(url) => Box::new(postgres::WholeServer::open_target(url).await?),
    })
}

/// The names of the tables of a shape.
pub(crate) fn table_names(shape: &Shape) -> BTreeSet<&str> {
    shape.iter().filter_map(|name| name.split_once('.')).map(|(table, _)| table).collect()
}
