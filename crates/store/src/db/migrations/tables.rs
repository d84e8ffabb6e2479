//! The tables of this program's schema, as its migrations make them. What handles every table asks here, so that it
//! cannot forget the table of a new migration.

use rusqlite::Connection;

use super::{Shape, TABLE, missing_columns, plan};
use crate::{Error, Result};

/// A table with all of its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    /// The columns whose values together occur once, and are never null: the order of the rows follows them.
    pub(crate) key: Vec<String>,
}

impl Table {
    /// The query of all rows, in the order of their keys, which is the same on both databases.
    pub(crate) fn select(&self) -> String {
        format!("select {} from {} order by {}", self.columns.join(", "), self.name, self.key.join(", "))
    }

    /// The statement that inserts a row.
    pub(crate) fn insert(&self) -> String {
        let names: Vec<String> = (1..=self.columns.len()).map(|number| format!("${number}")).collect();
        format!("insert into {} ({}) values ({})", self.name, self.columns.join(", "), names.join(", "))
    }
}

/// The statements that create the schema in an empty database.
pub(crate) fn creation() -> Result<Vec<String>> {
    let mut statements = vec![TABLE.to_owned()];
    statements.extend(missing_columns(&Shape::new()));
    statements.extend(plan(&[], Shape::new())?);
    Ok(statements)
}

/// All tables, by name. The text of a migration is the same for both databases, so an empty SQLite database in memory
/// shows them for PostgreSQL as well.
pub(crate) fn tables() -> Result<Vec<Table>> {
    let statements = creation()?;
    let read = || -> rusqlite::Result<Vec<Table>> {
        let connection = Connection::open_in_memory()?;
        statements.iter().try_for_each(|text| connection.execute_batch(text))?;
        let sql = "select name from sqlite_master where type = 'table' order by name";
        let mut statement = connection.prepare(sql)?;
        let names: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        names.into_iter().map(|name| read_table(&connection, name)).collect()
    };
    let tables = read().map_err(|error| Error::Database(format!("a migration does not run: {error}")))?;
    match tables.iter().find(|table| table.key.is_empty()) {
        Some(table) => Err(Error::Database(format!("the table {} has no key", table.name))),
        None => Ok(tables),
    }
}

/// Reads the columns of a table. Its key is the primary key, or else the columns of a unique index.
fn read_table(connection: &Connection, name: String) -> rusqlite::Result<Table> {
    let list = |sql: &str| -> rusqlite::Result<Vec<String>> {
        connection.prepare(sql)?.query_map([&name], |row| row.get(0))?.collect()
    };
    let columns = list("select name from pragma_table_info($1) order by cid")?;
    let mut key = list("select name from pragma_table_info($1) where pk > 0 order by pk")?;
    if key.is_empty() {
        key = list(
            "select columns.name from pragma_index_info((select indexes.name from pragma_index_list($1) indexes \
             where indexes.\"unique\" = 1 and indexes.partial = 0 and not exists (select 1 \
             from pragma_index_info(indexes.name) parts join pragma_table_info($1) own on own.name = parts.name \
             where own.\"notnull\" = 0) order by indexes.name limit 1)) columns order by columns.seqno",
        )?;
    }
    Ok(Table { name, columns, key })
}
