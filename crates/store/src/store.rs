//! The store as the rest of the house sees it: read on a consistent state, or write in one transaction.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_model::{Clock, Ids, Time};
use tokio::sync::oneshot;

use crate::db::{Executor, Job, Param, Postgres, Row, Sqlite};
use crate::{Error, Result};

/// Where the data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A file, for one process.
    Sqlite(PathBuf),
    /// A server, for several replicas: a `postgres://` address.
    Postgres(String),
}

/// All that Tarn remembers.
#[derive(Clone)]
pub struct Store {
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

enum Engine {
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

impl Store {
    /// Opens the database, makes it if need be, and brings its schema up to date.
    pub async fn open(database: &Database, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Result<Self> {
        let engine = match database {
            Database::Sqlite(path) => Engine::Sqlite(Sqlite::open(path)?),
            Database::Postgres(url) => Engine::Postgres(Box::new(Postgres::open(url).await?)),
        };
        let store = Store { engine: Arc::new(engine), clock, ids };
        store.fill_fingerprints().await?;
        Ok(store)
    }

    /// Opens a database that exists, only to read it: nothing is made and nothing is brought up to date, and whoever writes to it
    /// meanwhile is not kept from it. `is_alone` says that nobody else has it open.
    pub async fn look(database: &Database, is_alone: bool, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Result<Self> {
        let engine = match database {
            Database::Sqlite(path) => Engine::Sqlite(Sqlite::look(path, is_alone)?),
            Database::Postgres(url) => Engine::Postgres(Box::new(Postgres::look(url).await?)),
        };
        Ok(Store { engine: Arc::new(engine), clock, ids })
    }

    /// What the engine below says of itself.
    pub(crate) async fn health(&self) -> Result<crate::examine::Health> {
        match &*self.engine {
            Engine::Sqlite(sqlite) => sqlite.health(),
            Engine::Postgres(postgres) => postgres.health().await,
        }
    }

    /// A migration cannot compute fingerprints: what it left out is added here, some at a time.
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

    /// Counts the changes. While it stands still nothing has changed, so that what was read before is still so. `None` where
    /// other processes change things unseen.
    pub fn generation(&self) -> Option<u64> {
        match &*self.engine {
            Engine::Sqlite(sqlite) => Some(sqlite.generation()),
            Engine::Postgres(_) => None,
        }
    }

    /// Reads on one consistent state.
    pub async fn read<T, E, F>(&self, work: F) -> std::result::Result<T, E>
    where
        E: From<Error>,
        F: FnOnce(&mut Tx<'_>) -> std::result::Result<T, E>,
    {
        let (now, ids) = (self.clock.now(), &*self.ids);
        match &*self.engine {
            Engine::Sqlite(sqlite) => sqlite.read(|db| work(&mut Tx { db, now, ids }))?,
            Engine::Postgres(postgres) => postgres.read(|db| work(&mut Tx { db, now, ids })).await?,
        }
    }

    /// Writes in one transaction: all of it is on disk when this returns `Ok`, and nothing of it was kept on `Err`. The work
    /// may run more than once, so it must have no effect but on the transaction.
    pub async fn write<T, E, F>(&self, work: F) -> std::result::Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: Fn(&mut Tx<'_>) -> std::result::Result<T, E> + Send + 'static,
    {
        match &*self.engine {
            Engine::Sqlite(sqlite) => {
                let (reply, answer) = oneshot::channel();
                let (clock, ids) = (self.clock.clone(), self.ids.clone());
                sqlite.submit(Box::new(Work { work, clock, ids, result: None, reply }));
                answer.await.unwrap_or_else(|_| Err(Error::Unavailable("the writer has stopped".to_owned()).into()))
            }
            Engine::Postgres(postgres) => {
                postgres.write(|db| work(&mut Tx { db, now: self.clock.now(), ids: &*self.ids })).await
            }
        }
    }
}

/// An open transaction.
pub struct Tx<'a> {
    db: &'a mut dyn Executor,
    now: Time,
    ids: &'a dyn Ids,
}

impl<'a> Tx<'a> {
    /// When this transaction began.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Fresh ids.
    pub fn ids(&self) -> &'a dyn Ids {
        self.ids
    }

    pub(crate) fn query(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.db.query(sql, params)
    }

    /// The only row, if there is one.
    pub(crate) fn query_one(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<Option<Row>> {
        Ok(self.db.query(sql, params)?.into_iter().next())
    }

    pub(crate) fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64> {
        self.db.execute(sql, params)
    }

    /// Runs a statement that must find its row as it was read; otherwise somebody else was faster.
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

/// An operation on its way through SQLite's writer thread.
struct Work<F, T, E> {
    work: F,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    result: Option<std::result::Result<T, E>>,
    reply: oneshot::Sender<std::result::Result<T, E>>,
}

impl<F, T, E> Job for Work<F, T, E>
where
    T: Send,
    E: From<Error> + Send,
    F: Fn(&mut Tx<'_>) -> std::result::Result<T, E> + Send,
{
    fn run(&mut self, db: &mut dyn Executor) -> bool {
        let result = (self.work)(&mut Tx { db, now: self.clock.now(), ids: &*self.ids });
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn finish(self: Box<Self>, committed: Result<()>) {
        let result = match (committed, self.result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(Error::Database("the operation panicked and was taken back".to_owned()).into()),
            // A refusal needs no commit to be true.
            (Err(_), Some(Err(refused))) => Err(refused),
            (Err(error), _) => Err(error.into()),
        };
        // Whoever asked may have gone away; the work is done all the same.
        let _ = self.reply.send(result);
    }
}
