//! The store as other crates see it: reads run on one consistent state, writes run in one transaction.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::{Clock, Ids, Time};
use tokio::sync::oneshot;

use crate::db::{Cost, Executor, Param, Postgres, Row, Sqlite, WriteOperation};
use crate::events::Origin;
use crate::{Error, Result};

/// The database to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A file, used by one process.
    Sqlite(PathBuf),
    /// A server, used by several replicas: a `postgres://` address.
    Postgres(String),
}

/// A handle on the database. Clones share the connection.
#[derive(Clone)]
pub struct Store {
    backend: Arc<Backend>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

enum Backend {
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

impl Store {
    /// Opens the database, creating it if it does not exist, and migrates its schema to the current version.
    pub async fn open(database: &Database, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Result<Self> {
        let backend = match database {
            Database::Sqlite(path) => Backend::Sqlite(Sqlite::open(path)?),
            Database::Postgres(url) => Backend::Postgres(Box::new(Postgres::open(url).await?)),
        };
        let store = Store { backend: Arc::new(backend), clock, ids };
        store.fill_fingerprints().await?;
        Ok(store)
    }

    /// Opens an existing database for reading. Nothing is created or migrated, and other processes can still write to
    /// it. `is_alone` says that no other process has the database open.
    pub async fn open_read_only(
        database: &Database,
        is_alone: bool,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Self> {
        let backend = match database {
            Database::Sqlite(path) => Backend::Sqlite(Sqlite::open_read_only(path, is_alone)?),
            Database::Postgres(url) => Backend::Postgres(Box::new(Postgres::open_read_only(url).await?)),
        };
        Ok(Store { backend: Arc::new(backend), clock, ids })
    }

    /// Gives transactions on a server another limit than that of an engine, for commands that read or change
    /// everything in one of them. It must be called before any transaction runs.
    pub fn limit_transactions(&self, limit: Duration) {
        match &*self.backend {
            Backend::Sqlite(_) => {}
            Backend::Postgres(postgres) => postgres.limit_transactions(limit),
        }
    }

    /// The self-diagnosis of the database.
    pub(crate) async fn health(&self) -> Result<crate::examine::Health> {
        match &*self.backend {
            Backend::Sqlite(sqlite) => sqlite.health(),
            Backend::Postgres(postgres) => postgres.health().await,
        }
    }

    /// The addresses from which other processes use a database on a server.
    pub(crate) async fn users(&self) -> Result<Vec<String>> {
        match &*self.backend {
            Backend::Sqlite(_) => Ok(Vec::new()),
            Backend::Postgres(postgres) => postgres.users().await,
        }
    }

    /// Returns whether the database responds, within two seconds if it is a server, however busy its connections are.
    pub async fn ping(&self) -> Result<()> {
        match &*self.backend {
            Backend::Sqlite(sqlite) => sqlite.read(|db| db.query("select 1 from installation limit 1", &[]))?.map(drop),
            Backend::Postgres(postgres) => postgres.ping().await,
        }
    }

    /// Adds the fingerprints that a migration cannot compute, in batches.
    async fn fill_fingerprints(&self) -> Result<()> {
        let mut after = String::new();
        loop {
            let from = after.clone();
            match self.write(move |tx| crate::cluster_keys::fill_fingerprints(tx, &from)).await? {
                Some(last) => after = last,
                None => return Ok(()),
            }
        }
    }

    /// Returns the number of changes so far. While it does not change, earlier reads are still valid. `None` where
    /// other processes can change the database unnoticed.
    pub fn generation(&self) -> Option<u64> {
        match &*self.backend {
            Backend::Sqlite(sqlite) => Some(sqlite.generation()),
            Backend::Postgres(_) => None,
        }
    }

    /// Returns what this process has asked of the database so far.
    pub fn cost(&self) -> Cost {
        match &*self.backend {
            Backend::Sqlite(sqlite) => sqlite.cost(),
            Backend::Postgres(postgres) => postgres.cost(),
        }
    }

    /// Runs a read on one consistent state.
    pub async fn read<T, E, F>(&self, work: F) -> std::result::Result<T, E>
    where
        E: From<Error>,
        F: FnOnce(&mut Tx<'_>) -> std::result::Result<T, E>,
    {
        let (now, ids) = (self.clock.now(), &*self.ids);
        match &*self.backend {
            Backend::Sqlite(sqlite) => sqlite.read(|db| work(&mut Tx::new(db, now, ids)))?,
            Backend::Postgres(postgres) => postgres.read(|db| work(&mut Tx::new(db, now, ids))).await?,
        }
    }

    /// Runs a write in one transaction. All of it is on disk when this returns `Ok`, and none of it is kept on `Err`.
    /// The work may run more than once, so it must have no effect outside the transaction.
    pub async fn write<T, E, F>(&self, work: F) -> std::result::Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: Fn(&mut Tx<'_>) -> std::result::Result<T, E> + Send + 'static,
    {
        match &*self.backend {
            Backend::Sqlite(sqlite) => {
                let (reply, response) = oneshot::channel();
                let (clock, ids) = (self.clock.clone(), self.ids.clone());
                sqlite.submit(Box::new(QueuedWrite { work, clock, ids, result: None, reply }));
                response.await.unwrap_or_else(|_| Err(Error::Unavailable("the writer has stopped".to_owned()).into()))
            }
            Backend::Postgres(postgres) => {
                postgres.write(|db| work(&mut Tx::new(db, self.clock.now(), &*self.ids))).await
            }
        }
    }
}

/// An open transaction.
pub struct Tx<'a> {
    db: &'a mut dyn Executor,
    now: Time,
    ids: &'a dyn Ids,
    origin: Origin,
}

impl<'a> Tx<'a> {
    fn new(db: &'a mut dyn Executor, now: Time, ids: &'a dyn Ids) -> Self {
        Tx { db, now, ids, origin: Origin::default() }
    }

    /// Sets where the changes of this transaction come from. Every event that it records afterwards carries it.
    pub fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The start time of this transaction.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The source of fresh ids.
    pub fn ids(&self) -> &'a dyn Ids {
        self.ids
    }

    pub(crate) fn query(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.db.query(sql, params)
    }

    /// Returns whether the query returns any row.
    pub(crate) fn has_row(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<bool> {
        Ok(!self.db.query(sql, params)?.is_empty())
    }

    /// Reads every row.
    pub(crate) fn rows<T>(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        read: impl FnMut(&mut Row) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.db.query(sql, params)?.iter_mut().map(read).collect()
    }

    /// Reads the first row, if there is one.
    pub(crate) fn row<T>(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        read: impl FnOnce(&mut Row) -> Result<T>,
    ) -> Result<Option<T>> {
        self.db.query(sql, params)?.first_mut().map(read).transpose()
    }

    /// Reads the row of a query that always returns one.
    pub(crate) fn single<T>(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
        read: impl FnOnce(&mut Row) -> Result<T>,
    ) -> Result<T> {
        self.row(sql, params, read)?.ok_or(Error::Conflict)
    }

    /// Runs a statement, however many rows it changes.
    pub(crate) fn run(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        self.db.execute(sql, params).map(drop)
    }

    /// Lets this transaction take as long as it needs.
    pub(crate) fn lift_limit(&mut self) -> Result<()> {
        self.db.lift_limit()
    }

    pub(crate) fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64> {
        self.db.execute(sql, params)
    }

    /// Runs a statement that must change a row as it was read. `Conflict` when another writer changed it first.
    pub(crate) fn execute_guarded(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<()> {
        match self.db.execute(sql, params)? {
            0 => Err(Error::Conflict),
            _ => Ok(()),
        }
    }

    pub(crate) fn next_event_number(&mut self) -> Result<i64> {
        self.db.next_event_number()
    }
}

/// A write in the queue of SQLite's writer thread.
struct QueuedWrite<F, T, E> {
    work: F,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    result: Option<std::result::Result<T, E>>,
    reply: oneshot::Sender<std::result::Result<T, E>>,
}

impl<F, T, E> WriteOperation for QueuedWrite<F, T, E>
where
    T: Send,
    E: From<Error> + Send,
    F: Fn(&mut Tx<'_>) -> std::result::Result<T, E> + Send,
{
    fn apply(&mut self, db: &mut dyn Executor) -> bool {
        let result = (self.work)(&mut Tx::new(db, self.clock.now(), &*self.ids));
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn finish(self: Box<Self>, committed: Result<()>) {
        let result = match (committed, self.result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(Error::Database("the operation panicked and was rolled back".to_owned()).into()),
            // A refusal is valid without a commit.
            (Err(_), Some(Err(refused))) => Err(refused),
            (Err(error), _) => Err(error.into()),
        };
        // The caller may have stopped waiting. The write is complete all the same.
        let _ = self.reply.send(result);
    }
}
