//! SQLite: reader connections, and one writer thread that commits whole groups of operations with one fsync.
//!
//! A write waits in the queue while the group before it is being synced; then all that wait become one group, each
//! operation in a savepoint of its own. So the cost of the fsync is shared by as many calls as arrive in its time.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, ToSql};

use super::value::Value;
use super::{Executor, Param, Row, migrations};
use crate::examine::Health;
use crate::{Error, Result};

/// An operation in the writer's queue.
pub(crate) trait Job: Send {
    /// Does the work; `false` takes it back.
    fn run(&mut self, db: &mut dyn Executor) -> bool;
    /// Tells whoever waits, after the group was committed or lost.
    fn finish(self: Box<Self>, committed: Result<()>);
}

/// A database file.
pub(crate) struct Sqlite {
    path: PathBuf,
    readers: Mutex<Vec<Connection>>,
    writer: SyncSender<Box<dyn Job>>,
    generation: Arc<AtomicU64>,
}

/// How many operations share one fsync at most.
const GROUP: usize = 256;

/// How many operations may wait for the writer; more wait for room in the queue.
const QUEUE: usize = 4096;

/// How many idle readers are kept; there are rarely more than there are worker threads.
const IDLE_READERS: usize = 16;

/// How long the whole file may be looked through.
const CHECKING: std::time::Duration = std::time::Duration::from_secs(20);

/// How many faults are told.
const MAX_FAULTS: usize = 10;

impl Sqlite {
    /// Opens the file, makes it if need be, and brings it up to date.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // For its owner's eyes only; the files that SQLite puts beside it get the same mode.
        let made = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
        made.map_err(|error| Error::Unavailable(format!("{}: {error}", path.display())))?;
        let mut connection = connect(path, OpenFlags::default())?;
        connection
            .execute_batch(
                "pragma journal_mode = wal; pragma synchronous = full; \
                 pragma cache_size = -16384; pragma wal_autocheckpoint = 4096;",
            )
            .map_err(failed)?;
        migrate(&mut connection)?;
        let (writer, queue) = sync_channel(QUEUE);
        let generation = Arc::new(AtomicU64::new(0));
        let counter = generation.clone();
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_groups(&connection, &queue, &counter))
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Sqlite { path: path.to_owned(), readers: Mutex::new(Vec::new()), writer, generation })
    }

    /// Opens a file that exists, for reading only. Where nobody else has it open and no log lies beside it, SQLite need not put
    /// anything beside it either.
    pub(crate) fn look(path: &Path, is_alone: bool) -> Result<Self> {
        if !path.exists() {
            return Err(Error::Unavailable(format!("there is no database {}", path.display())));
        }
        let has_log = std::fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
        let path = if is_alone && !has_log { unchanging(path) } else { path.to_owned() };
        // Nobody hears what is written.
        let (writer, _) = sync_channel(1);
        let looked = Sqlite { path, readers: Mutex::new(Vec::new()), writer, generation: Arc::default() };
        looked.read(|db| db.query("select count(*) from sqlite_master", &[]))??;
        Ok(looked)
    }

    /// What SQLite says of the file. The look is given up when it takes too long, because the log grows meanwhile.
    pub(crate) fn health(&self) -> Result<Health> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let connection = connect(&self.path, flags)?;
        let handle = connection.get_interrupt_handle();
        let (done, waiting) = std::sync::mpsc::channel::<()>();
        let watch = std::thread::Builder::new().name("store-watch".to_owned()).spawn(move || {
            if waiting.recv_timeout(CHECKING) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                handle.interrupt();
            }
        });
        watch.map_err(|error| Error::Unavailable(error.to_string()))?;
        let lines = |sql: &str| -> rusqlite::Result<Vec<String>> {
            let mut statement = connection.prepare(sql)?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            rows.take(MAX_FAULTS).collect()
        };
        let checked = lines("pragma quick_check").and_then(|mut faults| {
            faults.extend(lines(
                "select 'a row of ' || \"table\" || ' names a row that is not there' from pragma_foreign_key_check",
            )?);
            Ok(faults)
        });
        drop(done);
        let faults = match checked {
            Ok(faults) => Some(faults.into_iter().filter(|line| line != "ok").collect()),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => None,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
                Some(vec![error.to_string()])
            }
            Err(error) => return Err(failed(error)),
        };
        let log_bytes = std::fs::metadata(beside(&self.path, "-wal")).map_or(0, |log| log.len());
        let version = rusqlite::version().to_owned();
        Ok(Health { engine: format!("SQLite {version}"), faults, log_bytes, ..Health::default() })
    }

    /// Counts the groups that were committed; while it stands still, nothing has changed.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Puts an operation into the writer's queue. Only a full queue makes this wait.
    pub(crate) fn submit(&self, job: Box<dyn Job>) {
        let rejected = match self.writer.try_send(job) {
            Ok(()) => None,
            Err(TrySendError::Full(job)) => {
                tokio::task::block_in_place(|| self.writer.send(job)).err().map(|lost| lost.0)
            }
            Err(TrySendError::Disconnected(job)) => Some(job),
        };
        if let Some(job) = rejected {
            job.finish(Err(Error::Unavailable("the writer has stopped".to_owned())));
        }
    }

    /// Runs a reading operation on a consistent state, here and now: such reads take microseconds.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&mut dyn Executor) -> T) -> Result<T> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect(
                &self.path,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI,
            )?,
        };
        step(&connection, "begin")?;
        let result = work(&mut Session { connection: &connection });
        step(&connection, "commit")?;
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < IDLE_READERS {
            readers.push(connection);
        }
        Ok(result)
    }
}

/// The file that SQLite keeps beside another.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The name of a file that nobody changes, in SQLite's own words.
fn unchanging(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let escaped = absolute.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    PathBuf::from(format!("file:{escaped}?immutable=1"))
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(256);
    // Without this guarantee SQLite looks at bound values while planning and prepares a statement anew for each of them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failed)?;
    Ok(connection)
}

fn migrate(connection: &mut Connection) -> Result<()> {
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    tx.execute_batch(migrations::TABLE).map_err(failed)?;
    let done: i64 = tx.query_row("select count(*) from migrations", [], |row| row.get(0)).map_err(failed)?;
    let Some(missing) = usize::try_from(done).ok().and_then(|done| migrations::ALL.get(done..)) else {
        return Err(migrations::too_new(done));
    };
    for (version, text) in (done + 1..).zip(missing) {
        tx.execute_batch(text).map_err(failed)?;
        tx.execute("insert into migrations (version) values (?1)", [version]).map_err(failed)?;
    }
    tx.commit().map_err(failed)
}

/// The writer thread: ends when the last sender is gone.
fn write_groups(connection: &Connection, queue: &Receiver<Box<dyn Job>>, generation: &AtomicU64) {
    while let Ok(first) = queue.recv() {
        if let Err(error) = step(connection, "begin immediate") {
            first.finish(Err(error));
            continue;
        }
        let mut group = Vec::new();
        let mut next = Some(first);
        while let Some(mut job) = next.take() {
            run_in_savepoint(connection, job.as_mut());
            group.push(job);
            // Some failures, a full disk for one, end the whole transaction: nothing more may join what is lost.
            if group.len() < GROUP && !connection.is_autocommit() {
                next = queue.try_recv().ok();
            }
        }
        let committed = match connection.is_autocommit() {
            false => step(connection, "commit"),
            true => Err(Error::Unavailable("the database took the transaction back".to_owned())),
        };
        if !connection.is_autocommit() {
            // Nothing of a group that could not be committed may be left half open.
            let _ = connection.execute_batch("rollback");
        }
        // Before anybody is told: whoever has his answer must not be shown what was before it.
        generation.fetch_add(1, Ordering::Release);
        for job in group {
            let outcome = match &committed {
                Ok(()) => Ok(()),
                Err(error) => Err(Error::Unavailable(error.to_string())),
            };
            job.finish(outcome);
        }
    }
}

fn run_in_savepoint(connection: &Connection, job: &mut dyn Job) {
    // A panicking operation must not take the only writer with it; its waiter learns that nothing was kept.
    let work = || step(connection, "savepoint operation").is_ok() && job.run(&mut Session { connection });
    let keep = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
    if !keep {
        let _ = step(connection, "rollback to operation");
    }
    let _ = step(connection, "release operation");
}

fn step(connection: &Connection, sql: &'static str) -> Result<()> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.raw_execute()).map(drop).map_err(failed)
}

/// A connection with an open transaction.
struct Session<'c> {
    connection: &'c Connection,
}

impl Session<'_> {
    fn bound(&self, sql: &'static str, params: &[Param<'_>]) -> Result<CachedStatement<'_>> {
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        // One without a name would be null, and nobody would notice.
        assert!(params.len() <= NAMES.len(), "a statement has more parameters than there are names: {sql}");
        for (param, name) in params.iter().zip(NAMES) {
            // SQLite numbers "$1" by its first appearance, so the name has to be looked up.
            if let Some(index) = statement.parameter_index(name).map_err(failed)? {
                statement.raw_bind_parameter(index, param).map_err(failed)?;
            }
        }
        Ok(statement)
    }
}

impl Executor for Session<'_> {
    fn query(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let mut statement = self.bound(sql, params)?;
        let width = statement.column_count();
        let mut rows = statement.raw_query();
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let mut values = Vec::with_capacity(width);
            for column in 0..width {
                values.push(own(row.get_ref(column).map_err(failed)?)?);
            }
            found.push(Row::new(values));
        }
        Ok(found)
    }

    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64> {
        Ok(self.bound(sql, params)?.raw_execute().map_err(failed)? as u64)
    }

    fn next_event_number(&mut self) -> Result<i64> {
        // There is one writer, so the order of numbers is the order of commits.
        let mut rows = self.query("select coalesce(max(number), 0) + 1 from events", &[])?;
        rows.first_mut().ok_or_else(|| Error::Corrupt("no number".to_owned()))?.integer()
    }
}

impl ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Param::Text(text) => ValueRef::Text(text.as_bytes()),
            Param::Integer(number) => ValueRef::Integer(*number),
            Param::Bytes(bytes) => ValueRef::Blob(bytes),
            Param::Null => ValueRef::Null,
        }))
    }
}

fn own(value: ValueRef<'_>) -> Result<Value> {
    Ok(match value {
        ValueRef::Text(text) => {
            Value::Text(String::from_utf8(text.to_vec()).map_err(|_| Error::Corrupt("a text is not UTF-8".to_owned()))?)
        }
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
        ValueRef::Null => Value::Null,
        ValueRef::Real(_) => return Err(Error::Corrupt("a column holds a fraction".to_owned())),
    })
}

fn failed(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => Error::Taken,
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::CannotOpen) => {
            Error::Unavailable(error.to_string())
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::ReadOnly) => Error::Unavailable(error.to_string()),
        _ => Error::Database(error.to_string()),
    }
}

const NAMES: [&str; 32] = [
    "$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10", "$11", "$12", "$13", "$14", "$15", "$16", "$17",
    "$18", "$19", "$20", "$21", "$22", "$23", "$24", "$25", "$26", "$27", "$28", "$29", "$30", "$31", "$32",
];
