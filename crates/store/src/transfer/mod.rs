//! Copies a whole database into another one, of either kind, while no engine uses them.
//!
//! The list of tables comes from the migrations, so that the table of a new migration is copied without a change here.
//! Each table is read back from the new database and compared before anything of it becomes visible. Start reading at
//! [`transfer`].

mod checksum;

use crate::db::migrations::{self, Recorded, Shape, Table};
use crate::db::whole::{WholeDatabase, open_source, open_target, table_names};
use crate::db::{Param, SCHEMA_VERSION};
use crate::{Database, Error, Result};
use checksum::Checksum;

/// The databases, as messages name them.
const OLD: &str = "the old database";
const NEW: &str = "the new database";

/// A table with its number of rows and its checksum, which is the same on both databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSum {
    /// The name of the table.
    pub table: String,
    /// The number of rows.
    pub rows: u64,
    /// The checksum, in hexadecimal.
    pub checksum: String,
}

/// The outcome of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// All tables, by name, as both databases have them.
    pub tables: Vec<TableSum>,
    /// Tables of the old database that are not of Tarn, which were not copied.
    pub left_out: Vec<String>,
}

/// Why a transfer was refused or ended: in which database, what happened, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

/// A step of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// So many rows of a table were copied.
    Copied {
        /// The name of the table.
        table: &'a str,
        /// The number of rows so far.
        rows: u64,
    },
    /// A table was read back, and is the same.
    Compared {
        /// The sum of the table.
        sum: &'a TableSum,
    },
}

/// Copies `from` into `to`, which must be empty, and compares them. On an error nothing of `to` is visible, and the
/// call can be repeated. `from` is not changed. An error if an engine uses one of them; the caller has locked the
/// directory of a SQLite database.
pub async fn transfer(
    from: &Database,
    to: &Database,
    report: &mut (dyn FnMut(Progress<'_>) + Send),
) -> std::result::Result<Transferred, Failure> {
    let tables = migrations::tables().map_err(|error| at("the migrations", error))?;
    let mut source = open_source(from).await.map_err(|error| at(OLD, error))?;
    let checked = tokio::task::block_in_place(|| check_source(&mut *source, &tables));
    let left_out = checked.map_err(|error| at(OLD, error))?;
    let mut target = open_target(to).await.map_err(|error| at(NEW, error))?;
    let tables = tokio::task::block_in_place(|| copy(&mut *source, &mut *target, &tables, report))?;
    Ok(Transferred { tables, left_out })
}

/// Returns the sums of all tables of a database that no engine uses.
#[cfg(feature = "testing")]
pub async fn sums(database: &Database) -> Result<Vec<TableSum>> {
    let mut source = open_source(database).await?;
    let tables = migrations::tables()?;
    tokio::task::block_in_place(|| tables.iter().map(|table| sum(&mut *source, table)).collect())
}

/// Checks that the database has the tables of this program, and no column that would be left behind. Returns the tables
/// that are not of Tarn.
fn check_source(source: &mut dyn WholeDatabase, tables: &[Table]) -> Result<Vec<String>> {
    let shape = source.shape()?;
    check_migrations(source, &shape)?;
    for table in tables {
        let prefix = format!("{}.", table.name);
        let has = |column: &String| shape.contains(&format!("{prefix}{column}"));
        if let Some(missing) = table.columns.iter().find(|column| !has(column)) {
            return Err(Error::Schema(format!("it lacks the column {prefix}{missing}; restore a backup")));
        }
        let unknown = shape
            .iter()
            .filter_map(|name| name.strip_prefix(&prefix))
            .find(|name| !table.columns.iter().any(|column| column == name));
        if let Some(unknown) = unknown {
            return Err(Error::Schema(format!(
                "this program does not know its column {prefix}{unknown}, which would be lost; undo what was changed by hand"
            )));
        }
    }
    source.check_integrity()?;
    let is_known = |name: &&str| tables.iter().any(|table| table.name == *name);
    Ok(table_names(&shape).into_iter().filter(|name| !is_known(name)).map(str::to_owned).collect())
}

/// Checks that all migrations of this program ran, and no others.
fn check_migrations(source: &mut dyn WholeDatabase, shape: &Shape) -> Result<()> {
    if !shape.contains("migrations.version") {
        return Err(Error::Schema("it is empty: it has no tables of Tarn".to_owned()));
    }
    let mut recorded = Vec::new();
    if shape.contains("migrations.hash") {
        source.scan(migrations::ROWS, &mut |page| {
            for row in page {
                let mut row = crate::db::Row::new(row);
                recorded.push(Recorded {
                    version: row.integer()?,
                    hash: row.maybe_text()?,
                    program: row.maybe_text()?,
                });
            }
            Ok(())
        })?;
    }
    migrations::check(&recorded)?;
    if recorded.iter().filter(|row| row.hash.is_some()).count() as i64 == SCHEMA_VERSION {
        return Ok(());
    }
    Err(Error::Schema(
        "an older program wrote it: start the engine of this program on it once, which upgrades it, stop the engine, and \
         try again"
            .to_owned(),
    ))
}

/// Copies all tables, compares them, and makes them visible.
fn copy(
    source: &mut dyn WholeDatabase,
    target: &mut dyn WholeDatabase,
    tables: &[Table],
    report: &mut (dyn FnMut(Progress<'_>) + Send),
) -> std::result::Result<Vec<TableSum>, Failure> {
    let of_target = |error| at(NEW, error);
    for statements in migrations::creation().map_err(of_target)? {
        target.run(&statements).map_err(of_target)?;
    }
    let mut sums = Vec::new();
    for table in tables {
        // A migration may have inserted rows.
        target.run(&format!("delete from {}", table.name)).map_err(of_target)?;
        sums.push(copy_table(source, target, table, report)?);
    }
    for (table, copied) in tables.iter().zip(&sums) {
        let arrived = sum(target, table).map_err(of_target)?;
        if arrived != *copied {
            return Err(Failure(format!(
                "{NEW}: the table {} is not the same as in the old one: {} rows with the checksum {} instead of {} rows \
                 with {}; check the disks of both, and try again",
                table.name, arrived.rows, arrived.checksum, copied.rows, copied.checksum
            )));
        }
        report(Progress::Compared { sum: copied });
    }
    // A server releases the lock with the connection. Then an engine may have written what was not copied.
    source.run("select 1").map_err(|error| at(OLD, error))?;
    target.publish().map_err(of_target)?;
    Ok(sums)
}

/// Copies a table, and returns the sum of what was read.
fn copy_table(
    source: &mut dyn WholeDatabase,
    target: &mut dyn WholeDatabase,
    table: &Table,
    report: &mut (dyn FnMut(Progress<'_>) + Send),
) -> std::result::Result<TableSum, Failure> {
    let (name, insert) = (&table.name, table.insert());
    let (mut checksum, mut place) = (Checksum::default(), OLD);
    let copied = source.scan(&table.select(), &mut |page| {
        place = NEW;
        target.insert(&insert, &page)?;
        place = OLD;
        checksum.add(&page);
        report(Progress::Copied { table: name, rows: checksum.rows });
        Ok(())
    });
    copied.map_err(|error| at(&format!("{place}, table {name}"), error))?;
    let counted = count(source, name).map_err(|error| at(OLD, error))?;
    if counted != checksum.rows {
        return Err(Failure(format!(
            "{OLD}: {} rows of the table {name} were found, and it counts {counted}; restore a backup",
            checksum.rows
        )));
    }
    Ok(TableSum { table: name.clone(), rows: checksum.rows, checksum: checksum.finish() })
}

/// Counts rows without reading them by their keys.
fn count(database: &mut dyn WholeDatabase, table: &str) -> Result<u64> {
    let mut counted = 0;
    database.scan(&format!("select count(*) from {table}"), &mut |page| {
        if let Some(Param::Integer(rows)) = page.first().and_then(|row| row.first()).map(|value| value.as_param()) {
            counted = rows;
        }
        Ok(())
    })?;
    u64::try_from(counted).map_err(|_| Error::Corrupt("a negative number of rows".to_owned()))
}

fn sum(database: &mut dyn WholeDatabase, table: &Table) -> Result<TableSum> {
    let mut checksum = Checksum::default();
    database.scan(&table.select(), &mut |page| {
        checksum.add(&page);
        Ok(())
    })?;
    Ok(TableSum { table: table.name.clone(), rows: checksum.rows, checksum: checksum.finish() })
}

/// Says in which database an error is.
fn at(place: &str, error: Error) -> Failure {
    let why = match error {
        Error::Unavailable(why) | Error::Schema(why) | Error::Corrupt(why) | Error::Database(why) => why,
        Error::Taken => "two rows have the same key or unique value".to_owned(),
        Error::Conflict => error.to_string(),
    };
    Failure(format!("{place}: {why}"))
}
