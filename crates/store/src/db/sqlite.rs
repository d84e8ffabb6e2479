//! SQLite: reader connections, and one writer thread that commits groups of operations with one fsync.
//!
//! A write waits in the queue while the previous group is being synced. Then all waiting writes become one group, each
//! in its own savepoint. So all calls that arrive during an fsync share the cost of the next one.

mod whole;

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, StatementStatus, ToSql};

use super::value::Value;
use super::{Cost, Executor, Param, Row, TotalCost, migrations};
use crate::examine::Health;
use crate::{Error, Result};

pub(crate) use whole::WholeFile;

/// A write in the queue of the writer thread.
pub(crate) trait WriteOperation: Send {
    /// Applies the write. `false` rolls it back.
    fn apply(&mut self, db: &mut dyn Executor) -> bool;
    /// Reports the result to the caller, after the group was committed or lost.
    fn finish(self: Box<Self>, committed: Result<()>);
}

/// A database file.
pub(crate) struct Sqlite {
    path: PathBuf,
    readers: Mutex<Vec<Connection>>,
    writer: SyncSender<Box<dyn WriteOperation>>,
    /// `None` if the file is open for reading only.
    writer_thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
}

/// What the writer thread and readers count.
#[derive(Default)]
struct Counters {
    /// The number of committed groups.
    generation: AtomicU64,
    cost: TotalCost,
}

impl Drop for Sqlite {
    /// Waits until the writer has closed the file. SQLite then removes the files beside it, and the end of the process
    /// must not interrupt that.
    fn drop(&mut self) {
        self.readers.get_mut().clear();
        self.writer = sync_channel(1).0;
        // The last operation may own the store, and is dropped by the writer thread itself.
        let thread = self.writer_thread.take().filter(|thread| thread.thread().id() != std::thread::current().id());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// The maximum number of operations that share one fsync.
const MAX_GROUP_OPERATIONS: usize = 256;

/// The maximum number of queued operations. Further callers wait for space in the queue.
const MAX_QUEUED_OPERATIONS: usize = 4096;

/// The maximum number of idle reader connections. There are rarely more readers than worker threads.
const IDLE_READERS: usize = 16;

/// The timeout of the check of the whole file.
const CHECK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

/// The maximum number of faults reported.
const MAX_FAULTS: usize = 10;

impl Sqlite {
    /// Opens the file, creating it if it does not exist, and migrates its schema.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // Only the owner may read it. The files that SQLite creates beside it get the same mode.
        let created = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
        created.map_err(|error| creation_error(path, &error))?;
        let mut connection = open_connection(path, OpenFlags::default())?;
        connection
            .execute_batch(
                "pragma journal_mode = wal; pragma synchronous = full; \
                 pragma cache_size = -16384; pragma wal_autocheckpoint = 4096;",
            )
            .map_err(sqlite_error)?;
        migrate_file(&mut connection)?;
        // Each operation is a savepoint, which saves every page before it changes. In memory that costs a copy, in a
        // temporary file a system call. Only the migration may change so many pages that they do not fit into memory.
        connection.execute_batch("pragma temp_store = memory").map_err(sqlite_error)?;
        let (writer, queue) = sync_channel(MAX_QUEUED_OPERATIONS);
        let counters = Arc::<Counters>::default();
        let counted = counters.clone();
        let writer_thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_groups(&connection, &queue, &counted))
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        let (path, writer_thread) = (path.to_owned(), Some(writer_thread));
        Ok(Sqlite { path, readers: Mutex::new(Vec::new()), writer, writer_thread, counters })
    }

    /// Opens an existing file for reading. When no other process has it open and it has no write-ahead log, SQLite does
    /// not need to create files beside it.
    pub(crate) fn open_read_only(path: &Path, is_alone: bool) -> Result<Self> {
        if !path.exists() {
            return Err(Error::Unavailable(format!("there is no database {}", path.display())));
        }
        let has_log = std::fs::metadata(sidecar_path(path, "-wal")).is_ok_and(|log| log.len() > 0);
        let path = if is_alone && !has_log { immutable_uri(path) } else { path.to_owned() };
        // No thread receives writes, so they fail.
        let (writer, _) = sync_channel(1);
        let (readers, counters) = (Mutex::new(Vec::new()), Arc::default());
        let sqlite = Sqlite { path, readers, writer, writer_thread: None, counters };
        sqlite.read(|db| db.query("select count(*) from sqlite_master", &[]))??;
        Ok(sqlite)
    }

    /// The self-diagnosis of SQLite. The check stops after a timeout, because the write-ahead log grows while it runs.
    pub(crate) fn health(&self) -> Result<Health> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let connection = open_connection(&self.path, flags)?;
        let handle = connection.get_interrupt_handle();
        let (done, waiting) = std::sync::mpsc::channel::<()>();
        let watch = std::thread::Builder::new().name("store-watch".to_owned()).spawn(move || {
            if waiting.recv_timeout(CHECK_TIMEOUT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
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
            Err(error) => return Err(sqlite_error(error)),
        };
        let log_bytes = std::fs::metadata(sidecar_path(&self.path, "-wal")).map_or(0, |log| log.len());
        let version = rusqlite::version().to_owned();
        Ok(Health { database: format!("SQLite {version}"), faults, log_bytes, ..Health::default() })
    }

    /// Returns the number of committed groups. While it does not change, nothing in the database has changed.
    pub(crate) fn generation(&self) -> u64 {
        self.counters.generation.load(Ordering::Acquire)
    }

    /// Returns what all transactions so far have cost.
    pub(crate) fn cost(&self) -> Cost {
        self.counters.cost.read()
    }

    /// Queues an operation for the writer thread. Waits only when the queue is full.
    pub(crate) fn submit(&self, operation: Box<dyn WriteOperation>) {
        let rejected = match self.writer.try_send(operation) {
            Ok(()) => None,
            Err(TrySendError::Full(operation)) => {
                tokio::task::block_in_place(|| self.writer.send(operation)).err().map(|lost| lost.0)
            }
            Err(TrySendError::Disconnected(operation)) => Some(operation),
        };
        if let Some(operation) = rejected {
            operation.finish(Err(Error::Unavailable("the writer has stopped".to_owned())));
        }
    }

    /// Runs a read on a consistent state in the calling thread: reads take microseconds.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&mut dyn Executor) -> T) -> Result<T> {
        let idle = self.readers.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open_connection(
                &self.path,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI,
            )?,
        };
        run_statement(&connection, "begin")?;
        let result = work(&mut Session::new(&connection, &self.counters.cost));
        run_statement(&connection, "commit")?;
        let mut readers = self.readers.lock();
        if readers.len() < IDLE_READERS {
            readers.push(connection);
        }
        Ok(result)
    }
}

/// The error of a file that cannot be created. Only space can come back by itself.
fn creation_error(path: &Path, error: &std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Unavailable(error.to_string()),
        _ => Error::Database(format!("{}: {error}", path.display())),
    }
}

/// The path of a file that SQLite keeps beside the database.
fn sidecar_path(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The URI by which SQLite opens a file that does not change.
fn immutable_uri(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let escaped = absolute.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    PathBuf::from(format!("file:{escaped}?immutable=1"))
}

fn open_connection(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite_error)?;
    connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(sqlite_error)?;
    connection.set_prepared_statement_cache_capacity(256);
    // Without this guarantee SQLite uses bound values while planning and prepares a statement again for each value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sqlite_error)?;
    Ok(connection)
}

fn migrate_file(connection: &mut Connection) -> Result<()> {
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(sqlite_error)?;
    tx.execute_batch(migrations::TABLE).map_err(sqlite_error)?;
    let shape = migrations::read_sqlite(&tx).map_err(sqlite_error)?;
    for statement in migrations::missing_columns(&shape) {
        tx.execute_batch(&statement).map_err(sqlite_error)?;
    }
    let recorded = recorded_migrations(&tx).map_err(sqlite_error)?;
    for statements in migrations::plan(&recorded, shape)? {
        tx.execute_batch(&statements).map_err(sqlite_error)?;
    }
    tx.commit().map_err(sqlite_error)
}

fn recorded_migrations(connection: &Connection) -> rusqlite::Result<Vec<migrations::Recorded>> {
    let mut statement = connection.prepare(migrations::ROWS)?;
    let rows = statement.query_map([], |row| {
        Ok(migrations::Recorded { version: row.get(0)?, hash: row.get(1)?, program: row.get(2)? })
    })?;
    rows.collect()
}

/// The writer thread. It ends when the last sender is dropped.
fn write_groups(connection: &Connection, queue: &Receiver<Box<dyn WriteOperation>>, counters: &Counters) {
    while let Ok(first) = queue.recv() {
        if let Err(error) = run_statement(connection, "begin immediate") {
            first.finish(Err(error));
            continue;
        }
        let mut group = Vec::new();
        let mut next = Some(first);
        while let Some(mut operation) = next.take() {
            run_in_savepoint(connection, operation.as_mut(), &counters.cost);
            group.push(operation);
            // Some failures, such as a full disk, end the whole transaction. No further operation may join a lost
            // group.
            if group.len() < MAX_GROUP_OPERATIONS && !connection.is_autocommit() {
                next = queue.try_recv().ok();
            }
        }
        let committed = if connection.is_autocommit() {
            Err(Error::Unavailable("the database rolled the transaction back".to_owned()))
        } else {
            run_statement(connection, "commit")
        };
        if !connection.is_autocommit() {
            // A group that could not be committed must not leave an open transaction.
            let _ = connection.execute_batch("rollback");
        }
        // Must happen before the results are reported: a caller that has its result must not read older data.
        counters.generation.fetch_add(1, Ordering::Release);
        for operation in group {
            let outcome = match &committed {
                Ok(()) => Ok(()),
                Err(error) => Err(Error::Unavailable(error.to_string())),
            };
            operation.finish(outcome);
        }
    }
}

fn run_in_savepoint(connection: &Connection, operation: &mut dyn WriteOperation, cost: &TotalCost) {
    // A panicking operation must not end the only writer. Its caller gets an error, and nothing is kept.
    let work = || {
        run_statement(connection, "savepoint operation").is_ok() && operation.apply(&mut Session::new(connection, cost))
    };
    let keep = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
    if !keep {
        let _ = run_statement(connection, "rollback to operation");
    }
    let _ = run_statement(connection, "release operation");
}

fn run_statement(connection: &Connection, sql: &'static str) -> Result<()> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.raw_execute()).map(drop).map_err(sqlite_error)
}

/// A connection with an open transaction.
struct Session<'c> {
    connection: &'c Connection,
    cost: Cost,
    total_cost: &'c TotalCost,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.total_cost.add(self.cost);
    }
}

impl<'c> Session<'c> {
    fn new(connection: &'c Connection, total_cost: &'c TotalCost) -> Self {
        Session { connection, cost: Cost::default(), total_cost }
    }

    /// Counts a statement that has run.
    fn count(&mut self, steps: i32, rows: usize) {
        self.cost.statements += 1;
        self.cost.rows += rows as u64;
        self.cost.steps += u64::try_from(steps).unwrap_or(0);
    }

    fn bind_statement(&self, sql: &'static str, params: &[Param<'_>]) -> Result<CachedStatement<'c>> {
        let mut statement = self.connection.prepare_cached(sql).map_err(sqlite_error)?;
        // A parameter without a name would silently be null.
        assert!(params.len() <= NAMES.len(), "a statement has more parameters than there are names: {sql}");
        for (param, name) in params.iter().zip(NAMES) {
            // SQLite numbers "$1" by its first occurrence, so the index is looked up by name.
            if let Some(index) = statement.parameter_index(name).map_err(sqlite_error)? {
                statement.raw_bind_parameter(index, param).map_err(sqlite_error)?;
            }
        }
        Ok(statement)
    }
}

impl Executor for Session<'_> {
    fn query(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let mut statement = self.bind_statement(sql, params)?;
        let width = statement.column_count();
        let mut rows = statement.raw_query();
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(sqlite_error)? {
            let mut values = Vec::with_capacity(width);
            for column in 0..width {
                values.push(owned_value(row.get_ref(column).map_err(sqlite_error)?)?);
            }
            found.push(Row::new(values));
        }
        drop(rows);
        // The cached statement keeps the number until it is reset.
        self.count(statement.reset_status(StatementStatus::VmStep), found.len());
        Ok(found)
    }

    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64> {
        let mut statement = self.bind_statement(sql, params)?;
        let changed = statement.raw_execute().map_err(sqlite_error)?;
        self.count(statement.reset_status(StatementStatus::VmStep), 0);
        Ok(changed as u64)
    }

    fn next_event_number(&mut self) -> Result<i64> {
        // There is one writer, so numbers follow the order of commits.
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

fn owned_value(value: ValueRef<'_>) -> Result<Value> {
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

pub(crate) fn sqlite_error(error: rusqlite::Error) -> Error {
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
