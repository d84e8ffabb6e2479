//! `tarn admin migrate`: copies the database of a stopped engine into another one, from SQLite to PostgreSQL or back.
//! The store copies and compares; this command finds the databases, locks the data directory, and says what to do next.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use tarn_store::Database;
use tarn_store::transfer::{self, Progress, Transferred};

use crate::config::{DataOptions, locate_database, parse_database};
use crate::data;
use crate::failure::{Failure, Result};

/// Progress is printed after so many rows of a table.
const ROWS_PER_LINE: u64 = 50_000;

/// Options of `tarn admin migrate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct MigrateOptions {
    /// The new, empty database: postgres://user:password@host/database, or sqlite for the data directory
    #[arg(long, env = "TARN_MIGRATE_TO", value_name = "URL|sqlite", hide_env_values = true)]
    to: String,
    /// Configuration file of the engine; its data and database are used
    #[arg(long, env = "TARN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    data: DataOptions,
}

/// Copies the database.
pub(crate) async fn migrate_database(options: &MigrateOptions) -> Result<()> {
    let (directory, old) = locate_database(options.config.as_deref(), &options.data)?;
    let new = match options.to.as_str() {
        "sqlite" => parse_database(&directory, None)?,
        url => parse_database(&directory, Some(url)).map_err(|_| {
            Failure("--to must be a postgres:// URL, or sqlite for a file in the data directory".to_owned())
        })?,
    };
    if old == new {
        return Err(Failure(
            "the engine uses this database already; name the one that it uses with --data, --database or --config, and \
             the new one with --to"
                .to_owned(),
        ));
    }
    check_exists(&old, &directory)?;
    let _lock = lock_directory(&directory, &new).await?;
    print(&format!("Copying {} into {}.", describe(&old), describe(&new)));
    let transferred = transfer::transfer(&old, &new, &mut print_progress).await;
    let transferred = transferred.map_err(|failure| {
        Failure(format!("{failure}\nThe old database is as before, and nothing incomplete is left in the new one."))
    })?;
    print(&describe_outcome(&transferred, &new, &directory));
    Ok(())
}

/// Refuses a data directory without a database, before anything is created in it.
fn check_exists(old: &Database, directory: &Path) -> Result<()> {
    match old {
        Database::Sqlite(path) if !path.exists() => Err(Failure(format!(
            "there is no database in {}; name the data directory with --data, or the PostgreSQL database with --database",
            directory.display()
        ))),
        Database::Sqlite(_) | Database::Postgres(_) => Ok(()),
    }
}

/// Locks the data directory, so that no engine opens the file in it.
async fn lock_directory(directory: &Path, new: &Database) -> Result<Option<File>> {
    if matches!(new, Database::Sqlite(_)) {
        data::create_directory(directory)?;
    } else if !directory.exists() {
        // Both databases are on servers.
        return Ok(None);
    }
    data::lock_directory(directory).await.map(Some)
}

fn describe(database: &Database) -> String {
    match database {
        Database::Sqlite(path) => path.display().to_string(),
        // The address holds a password.
        Database::Postgres(_) => "the PostgreSQL database".to_owned(),
    }
}

fn print_progress(progress: Progress<'_>) {
    match progress {
        Progress::Copied { table, rows } if rows.is_multiple_of(ROWS_PER_LINE) => {
            print(&format!("{table}: {rows} rows so far"));
        }
        Progress::Copied { .. } => {}
        Progress::Compared { sum } => print(&format!("{}: {} rows, the same in both", sum.table, sum.rows)),
    }
}

/// Prints a line. A closed pipe must not end the copying.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The table of all tables, and what to do next.
fn describe_outcome(transferred: &Transferred, new: &Database, directory: &Path) -> String {
    let width = transferred.tables.iter().map(|sum| sum.table.len()).max().unwrap_or_default();
    let row = |table: &str, rows: &str, checksum: &str| format!("{table:width$}  {rows:>12}  {checksum}");
    let mut lines = vec![String::new(), row("TABLE", "ROWS", "CHECKSUM IN BOTH")];
    lines.extend(transferred.tables.iter().map(|sum| row(&sum.table, &sum.rows.to_string(), &sum.checksum)));
    if !transferred.left_out.is_empty() {
        let names = transferred.left_out.join(", ");
        lines.extend([String::new(), format!("Not copied, because these tables are not of Tarn: {names}")]);
    }
    let setting = match new {
        Database::Postgres(_) => {
            "Set `database` in its configuration, TARN_DATABASE or --database to the address that you gave with --to."
                .to_owned()
        }
        Database::Sqlite(_) => format!(
            "Remove `database` from its configuration, TARN_DATABASE and --database. It then uses the file in {}.",
            directory.display()
        ),
    };
    lines.extend([
        "\nThe new database is complete. Before the engine starts:".to_owned(),
        format!("* {setting}"),
        "* Keep the rest of its configuration: secret.key, the objects and the volumes stay where they are.".to_owned(),
        "* Move the old database away: an engine that opened it would continue from what was true until now."
            .to_owned(),
    ]);
    lines.join("\n")
}
