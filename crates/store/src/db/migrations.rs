//! The migrations, in order. They only add tables and columns. A removal waits for the release after the last use.
//!
//! The table `migrations` has a row for each migration that ran, with the hash of its text and the version of the
//! program that ran it. A database is opened only if its migrations are those of this program. Start reading at
//! [`plan`].

mod adoption;
mod shape;
mod tables;

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

pub(crate) use shape::Shape;
pub(super) use shape::{POSTGRES_SHAPE, read_sqlite};
pub(crate) use tables::{Table, creation, tables};

use crate::{Error, Result};

/// Each migration runs once, in its own transaction.
pub(crate) const ALL: [&str; 19] = [
    include_str!("../../../../migrations/0001_spine.sql"),
    include_str!("../../../../migrations/0002_machines.sql"),
    include_str!("../../../../migrations/0003_volumes.sql"),
    include_str!("../../../../migrations/0004_objects.sql"),
    include_str!("../../../../migrations/0005_jobs.sql"),
    include_str!("../../../../migrations/0006_images.sql"),
    include_str!("../../../../migrations/0007_gpus.sql"),
    include_str!("../../../../migrations/0008_limits.sql"),
    include_str!("../../../../migrations/0009_audit.sql"),
    include_str!("../../../../migrations/0010_s3_keys.sql"),
    include_str!("../../../../migrations/0011_line.sql"),
    include_str!("../../../../migrations/0012_usage.sql"),
    include_str!("../../../../migrations/0013_access.sql"),
    include_str!("../../../../migrations/0014_ssh_key_proofs.sql"),
    include_str!("../../../../migrations/0015_quotas.sql"),
    include_str!("../../../../migrations/0016_ended_requests.sql"),
    include_str!("../../../../migrations/0017_bucket_settings.sql"),
    include_str!("../../../../migrations/0018_counts.sql"),
    include_str!("../../../../migrations/0019_bounded_reads.sql"),
];

/// The schema version that this program supports: the number of migrations.
pub(crate) const SCHEMA_VERSION: i64 = ALL.len() as i64;

/// The version of this program, which the rows of its migrations name.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// The table that records the migrations that have run. [`missing_columns`] adds the others.
pub(super) const TABLE: &str = "create table if not exists migrations (version bigint primary key)";

/// The columns of that table that programs before 0.2.0 did not create.
const COLUMNS: [&str; 2] = ["hash", "program"];

/// The rows of the table.
pub(crate) const ROWS: &str = "select version, hash, program from migrations order by version";

/// A row of the table: a migration that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) version: i64,
    /// The hash of the text that ran; `None` if a program before 0.2.0 ran it.
    pub(crate) hash: Option<String>,
    /// The version of the program that ran it.
    pub(crate) program: Option<String>,
}

/// Returns the statements that add the columns that are missing.
pub(super) fn missing_columns(shape: &Shape) -> Vec<String> {
    let missing = COLUMNS.iter().filter(|column| !shape.contains(&format!("migrations.{column}")));
    missing.map(|column| format!("alter table migrations add column {column} text")).collect()
}

/// Returns the statements that bring a database to the schema of this program, to be run in one transaction. An error
/// if the database belongs to another program.
pub(super) fn plan(recorded: &[Recorded], shape: Shape) -> Result<Vec<String>> {
    check(recorded)?;
    let mut statements = Vec::new();
    let mut done: BTreeSet<i64> = recorded.iter().map(|row| row.version).collect();
    if recorded.iter().any(|row| row.hash.is_none()) {
        let adopted = adoption::adopt(recorded.len(), shape)?;
        statements.extend(adopted.repairs.iter().map(|sql| (*sql).to_owned()));
        // The numbers of the rows are those of the migrations that really ran.
        statements.push("delete from migrations".to_owned());
        statements.extend(adopted.done.iter().map(|version| record(*version, None)));
        done = adopted.done;
    }
    for (version, text) in (1..).zip(ALL).filter(|(version, _)| !done.contains(version)) {
        statements.extend([text.to_owned(), record(version, Some(PROGRAM))]);
    }
    Ok(statements)
}

/// The statement that records a migration. It has no parameters, so that it is one text in a batch.
fn record(version: i64, program: Option<&str>) -> String {
    let hash = known_hash(version).unwrap_or_default();
    let program = program.map_or("null".to_owned(), |program| format!("'{program}'"));
    format!("insert into migrations (version, hash, program) values ({version}, '{hash}', {program})")
}

/// The hash of the text of a migration of this program, as `sha256sum` prints it.
fn known_hash(version: i64) -> Option<String> {
    let text = usize::try_from(version - 1).ok().and_then(|index| ALL.get(index))?;
    Some(hex::encode(Sha256::digest(text)))
}

/// Refuses migrations of a newer program or of another one.
pub(crate) fn check(recorded: &[Recorded]) -> Result<()> {
    check_not_newer(recorded)?;
    recorded.iter().filter(|row| row.hash.is_some()).try_for_each(check_hash)
}

fn check_not_newer(recorded: &[Recorded]) -> Result<()> {
    let Some(newest) = recorded.iter().max_by_key(|row| row.version).filter(|row| row.version > SCHEMA_VERSION) else {
        return Ok(());
    };
    let (found, writer) = (newest.version, newest.program.as_deref());
    let by = writer.map_or("a newer program".to_owned(), |writer| format!("Tarn {writer}"));
    let install = writer.map_or("a newer program".to_owned(), |writer| format!("Tarn {writer} or a newer one"));
    Err(Error::Schema(format!(
        "the database has schema {found} of {by}, and this program, Tarn {PROGRAM}, knows schema {SCHEMA_VERSION}: \
         install {install}, or restore a backup that was made before the upgrade (docs/upgrading.md)"
    )))
}

fn check_hash(row: &Recorded) -> Result<()> {
    let version = row.version;
    if known_hash(version) == row.hash {
        return Ok(());
    }
    let by = row.program.as_deref().map_or("another program".to_owned(), |writer| format!("Tarn {writer}"));
    Err(Error::Schema(format!(
        "migration {version} of the database, run by {by}, has another text than that of this program, Tarn {PROGRAM}: \
         one of them was not built from a release. Run the program that wrote the data, or restore a backup \
         (docs/upgrading.md)"
    )))
}

#[cfg(test)]
mod tests;
