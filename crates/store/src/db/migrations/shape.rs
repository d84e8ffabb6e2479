//! The shape of a database: its columns and indexes, by name. It shows which migrations have run.

use std::collections::BTreeSet;

use super::ALL;
use crate::{Error, Result};

/// The names of the columns, as `table.column`, and of the indexes.
pub(crate) type Shape = BTreeSet<String>;

/// Reads the shape of a SQLite database.
const SQLITE_SHAPE: &str = "select tables.name || '.' || columns.name from sqlite_master tables, pragma_table_info(tables.name) columns \
     where tables.type = 'table' union all select name from sqlite_master where type = 'index' and sql is not null";

/// Reads the shape of a PostgreSQL database.
pub(in crate::db) const POSTGRES_SHAPE: &str = "select cast(table_name as text) || '.' || cast(column_name as text) from information_schema.columns \
     where table_schema = current_schema() \
     union all select cast(indexname as text) from pg_indexes where schemaname = current_schema()";

/// What each migration adds to the shape, in their order. The text of a migration is the same for both databases, so an
/// empty SQLite database in memory shows it for PostgreSQL as well.
pub(super) fn added_by_migrations() -> Result<Vec<Shape>> {
    let corrupt = |error: rusqlite::Error| Error::Database(format!("a migration does not run: {error}"));
    let connection = rusqlite::Connection::open_in_memory().map_err(corrupt)?;
    let mut before = Shape::new();
    let mut added = Vec::new();
    for text in ALL {
        connection.execute_batch(text).map_err(corrupt)?;
        let after = read_sqlite(&connection).map_err(corrupt)?;
        added.push(after.difference(&before).cloned().collect());
        before = after;
    }
    Ok(added)
}

/// Reads the shape of an open SQLite database.
pub(in crate::db) fn read_sqlite(connection: &rusqlite::Connection) -> rusqlite::Result<Shape> {
    connection.prepare(SQLITE_SHAPE)?.query_map([], |row| row.get(0))?.collect()
}
