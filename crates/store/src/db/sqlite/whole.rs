//! A database file that one command reads or writes as a whole.
//!
//! A new file is written under another name, without a journal, and gets its own name when it is complete and on disk.
//! So a command that is killed leaves a file that no engine opens, and that the next try replaces.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use tarn_base::files;

use super::{open_connection, owned_value, sidecar_path, sqlite_error};
use crate::db::migrations::{self, Shape};
use crate::db::value::Value;
use crate::db::whole::{PAGE_ROWS, Values, WholeDatabase};
use crate::{Error, Result};

/// The ends of the names of files that SQLite keeps beside a database.
const SIDECARS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The end of the name of a file that is not complete.
const INCOMPLETE: &str = ".incomplete";

/// How many faults a message lists.
const SHOWN_FAULTS: usize = 5;

/// A database file.
pub(crate) struct WholeFile {
    /// `None` once the file is published.
    connection: Option<Connection>,
    /// The final name of a file that is written.
    target: Option<PathBuf>,
}

impl WholeFile {
    /// Opens an existing file. Its lock for writers keeps other commands from changing it.
    pub(crate) fn open_source(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Err(Error::Unavailable(format!("there is no database {}", path.display())));
        }
        let connection = open_connection(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.execute_batch("begin immediate").map_err(sqlite_error)?;
        Ok(WholeFile { connection: Some(connection), target: None })
    }

    /// Creates a file, under another name until it is published. The caller makes sure that only one process does.
    pub(crate) fn create_target(path: &Path) -> Result<Self> {
        let beside = SIDECARS.map(|end| sidecar_path(path, end));
        if let Some(taken) = std::iter::once(path.to_owned()).chain(beside).find(|path| path.symlink_metadata().is_ok())
        {
            return Err(Error::Unavailable(format!(
                "{} exists: move it away, with the files beside it whose names begin alike, because the new database \
                 must not replace another one",
                taken.display()
            )));
        }
        remove_incomplete(path)?;
        let incomplete = sidecar_path(path, INCOMPLETE);
        // Only the owner may read it.
        let created = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&incomplete);
        created.map_err(|error| unavailable(&incomplete, &error))?;
        let connection = open_connection(&incomplete, OpenFlags::default())?;
        let begin = "pragma journal_mode = off; pragma synchronous = off; pragma locking_mode = exclusive; \
                     pragma cache_size = -65536; begin immediate";
        connection.execute_batch(begin).map_err(sqlite_error)?;
        Ok(WholeFile { connection: Some(connection), target: Some(path.to_owned()) })
    }

    fn connection(&self) -> Result<&Connection> {
        self.connection.as_ref().ok_or_else(|| Error::Unavailable("the database is closed".to_owned()))
    }
}

impl WholeDatabase for WholeFile {
    fn run(&mut self, sql: &str) -> Result<()> {
        self.connection()?.execute_batch(sql).map_err(sqlite_error)
    }

    fn shape(&mut self) -> Result<Shape> {
        migrations::read_sqlite(self.connection()?).map_err(sqlite_error)
    }

    fn scan(&mut self, sql: &str, take: &mut dyn FnMut(Vec<Values>) -> Result<()>) -> Result<()> {
        let mut statement = self.connection()?.prepare(sql).map_err(sqlite_error)?;
        let width = statement.column_count();
        let mut rows = statement.raw_query();
        let mut page = Vec::with_capacity(PAGE_ROWS);
        while let Some(row) = rows.next().map_err(sqlite_error)? {
            let values = (0..width).map(|column| owned_value(row.get_ref(column).map_err(sqlite_error)?));
            page.push(values.collect::<Result<Values>>()?);
            if page.len() == PAGE_ROWS {
                take(std::mem::take(&mut page))?;
            }
        }
        if page.is_empty() { Ok(()) } else { take(page) }
    }

    fn insert(&mut self, sql: &str, rows: &[Values]) -> Result<()> {
        let mut statement = self.connection()?.prepare_cached(sql).map_err(sqlite_error)?;
        for row in rows {
            // The statement names its parameters once each and in order, so their numbers are their positions.
            for (number, value) in (1..).zip(row) {
                statement.raw_bind_parameter(number, value.as_param()).map_err(sqlite_error)?;
            }
            statement.raw_execute().map_err(sqlite_error)?;
        }
        Ok(())
    }

    fn check_integrity(&mut self) -> Result<()> {
        let mut faults = Vec::new();
        let mut check = |page: Vec<Values>| {
            faults.extend(page.into_iter().flatten().filter_map(|value| match value {
                Value::Text(line) if line != "ok" => Some(line),
                _ => None,
            }));
            Ok(())
        };
        self.scan("pragma integrity_check", &mut check)?;
        faults.truncate(SHOWN_FAULTS);
        if faults.is_empty() {
            Ok(())
        } else {
            Err(Error::Corrupt(format!("the file is damaged ({}); restore a backup", faults.join("; "))))
        }
    }

    fn publish(&mut self) -> Result<()> {
        let Some(path) = self.target.clone() else { return Ok(()) };
        self.run("commit")?;
        let closed = self.connection.take().map_or(Ok(()), |connection| connection.close().map_err(|(_, error)| error));
        closed.map_err(sqlite_error)?;
        let incomplete = sidecar_path(&path, INCOMPLETE);
        let synced = File::open(&incomplete).and_then(|file| file.sync_all());
        synced.map_err(|error| unavailable(&incomplete, &error))?;
        files::publish_file(&incomplete, &path).map_err(|error| unavailable(&path, &error))?;
        self.target = None;
        Ok(())
    }
}

impl Drop for WholeFile {
    /// Removes a file that is not complete.
    fn drop(&mut self) {
        drop(self.connection.take());
        if let Some(path) = &self.target {
            let _ = remove_incomplete(path);
        }
    }
}

/// Removes what an earlier try left.
fn remove_incomplete(path: &Path) -> Result<()> {
    let incomplete = sidecar_path(path, INCOMPLETE);
    match fs::remove_file(&incomplete) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(unavailable(&incomplete, &error)),
        _ => Ok(()),
    }
}

fn unavailable(path: &Path, error: &std::io::Error) -> Error {
    Error::Unavailable(format!("{}: {error}", path.display()))
}
