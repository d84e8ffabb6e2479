//! Connections to the server: a bounded number of them, and a limit for everything that waits for one.
//!
//! A server that hangs still acknowledges what the network delivers, so no timeout of the network ends a wait for it.
//! Therefore every wait ends with the [`Deadline`] of its transaction, and a connection that missed it is dropped.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, Statement};

use super::guard;
use crate::{Error, Result};

/// The maximum number of connections of one process, apart from the one of [`Pool::ping`].
const MAX_CONNECTIONS: usize = 16;

/// The limit of a transaction of an engine, from the wait for a connection to the commit.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// How much of the limit may pass until a connection is free. What is left is enough for a transaction, so that a busy
/// server does not lose connections that work.
const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// The limit of a ping. A probe gets its response within two seconds.
const PING_LIMIT: Duration = Duration::from_millis(1500);

/// What the server does by itself, because the client may be gone: a statement ends with the limit of its transaction,
/// and a transaction whose client is silent must not keep the lock of the writers.
fn session(limit: Duration) -> String {
    let millis = limit.as_millis();
    format!("set statement_timeout = {millis}; set idle_in_transaction_session_timeout = '30s'")
}

/// Why a wait for the server ended without a response.
pub(super) enum Failed {
    /// The deadline passed.
    Late,
    /// The server reported an error, or the connection broke.
    Reported(tokio_postgres::Error),
}

impl Failed {
    /// Whether the transaction lost a race and can be repeated.
    pub(super) fn is_lost_race(&self) -> bool {
        let codes = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
        match self {
            Failed::Late => false,
            Failed::Reported(error) => error.code().is_some_and(|code| codes.contains(&code)),
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        match failed {
            Failed::Late => Error::Unavailable("PostgreSQL did not respond in time".to_owned()),
            Failed::Reported(error) => postgres_error(&error),
        }
    }
}

/// When the waits of a transaction end.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline of work that begins now.
    pub(super) fn after(limit: Duration) -> Self {
        Deadline(Instant::now() + limit)
    }

    /// Returns this deadline, or an earlier one.
    fn at_most(self, limit: Duration) -> Self {
        Deadline(self.0.min(Instant::now() + limit))
    }

    /// Waits for the server. Nothing is sent any more once the deadline has passed.
    pub(super) async fn wait<T>(
        self,
        response: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> std::result::Result<T, Failed> {
        if self.0 <= Instant::now() {
            return Err(Failed::Late);
        }
        timeout_at(self.0, response).await.map_err(|_| Failed::Late)?.map_err(Failed::Reported)
    }
}

/// A connection. It is closed at once when it is dropped, without a goodbye to a server that may hang.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) statements: HashMap<&'static str, Statement>,
    transport: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The task would otherwise wait for the responses to what was sent, and keep its socket as long.
        self.transport.abort();
    }
}

/// The connections to a server.
pub(super) struct Pool {
    config: tokio_postgres::Config,
    /// Whether the connections belong to an engine.
    is_engine: bool,
    /// The limit of its transactions.
    limit: Mutex<Duration>,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
    /// The connection of [`Pool::ping`].
    pinging: tokio::sync::Mutex<Option<Connection>>,
}

/// A connection in use. It is dropped with this value unless [`Lease::release`] returns it to the pool.
pub(super) struct Lease<'p> {
    pub(super) connection: Connection,
    pub(super) deadline: Deadline,
    pool: &'p Pool,
    _permit: SemaphorePermit<'p>,
}

impl Pool {
    /// The connections of an engine; at first there are none.
    pub(super) fn of_engine(url: &str) -> Result<Pool> {
        Ok(Pool { is_engine: true, ..Self::new(url)? })
    }

    /// Connections that can only read, also beside an engine.
    pub(super) fn of_reader(url: &str) -> Result<Pool> {
        let mut pool = Self::new(url)?;
        pool.config.options("-c default_transaction_read_only=on");
        Ok(pool)
    }

    /// Connects for a command that uses the database alone, for as long as it takes.
    pub(super) async fn connect_alone(url: &str) -> Result<Connection> {
        let (pool, deadline) = (Self::new(url)?, Deadline::after(LIMIT));
        let connection = pool.connect(deadline).await?;
        guard::use_alone(&connection.client, deadline).await?;
        Ok(connection)
    }

    fn new(url: &str) -> Result<Pool> {
        // The error must not repeat the address: it holds a password.
        let config: std::result::Result<tokio_postgres::Config, _> = url.parse();
        let mut config = config.map_err(|_| Error::Schema("the database address cannot be understood".to_owned()))?;
        config.connect_timeout(LIMIT).tcp_user_timeout(LIMIT).keepalives_idle(LIMIT);
        let (idle, permits) = (Mutex::default(), Semaphore::new(MAX_CONNECTIONS));
        let limit = Mutex::new(LIMIT);
        Ok(Pool { config, is_engine: false, limit, idle, permits, pinging: tokio::sync::Mutex::default() })
    }

    /// Returns a connection for one transaction.
    pub(super) async fn acquire(&self) -> Result<Lease<'_>> {
        let deadline = Deadline::after(*self.limit.lock());
        let permit = tokio::time::timeout(BUSY_LIMIT, self.permits.acquire()).await;
        let permit = permit.map_err(|_| Error::Unavailable("every connection is busy".to_owned()))?;
        let permit = permit.map_err(|error| Error::Unavailable(error.to_string()))?;
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) if !connection.client.is_closed() => connection,
            _ => self.connect(deadline.at_most(LIMIT)).await?,
        };
        Ok(Lease { connection, deadline, pool: self, _permit: permit })
    }

    /// Asks the server for a row, on a connection of its own: those of the pool may all wait for a server that hangs.
    pub(super) async fn ping(&self) -> Result<()> {
        let (deadline, sql) = (Deadline::after(PING_LIMIT), "select value from installation limit 1");
        let kept = timeout_at(deadline.0, self.pinging.lock()).await;
        let mut kept = kept.map_err(|_| Error::from(Failed::Late))?;
        // The server may have been restarted since the last ping.
        if let Some(connection) = kept.take()
            && deadline.wait(connection.client.batch_execute(sql)).await.is_ok()
        {
            *kept = Some(connection);
            return Ok(());
        }
        let connection = self.connect(deadline).await?;
        deadline.wait(connection.client.batch_execute(sql)).await?;
        *kept = Some(connection);
        Ok(())
    }

    /// Gives the transactions that begin from now on another limit.
    pub(super) fn limit(&self, limit: Duration) {
        *self.limit.lock() = limit;
        // The server knows the earlier limit of these.
        self.idle.lock().clear();
    }

    async fn connect(&self, deadline: Deadline) -> Result<Connection> {
        let (client, driver) = deadline.wait(self.config.connect(NoTls)).await?;
        let transport = tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a database connection ended");
            }
        });
        let connection = Connection { client, statements: HashMap::new(), transport };
        let session = session(*self.limit.lock());
        if self.is_engine {
            guard::join_users(&connection.client, deadline, &session).await?;
        } else {
            deadline.wait(connection.client.batch_execute(&session)).await?;
        }
        Ok(connection)
    }
}

impl Lease<'_> {
    /// Runs statements without parameters.
    pub(super) async fn run(&self, sql: &str) -> std::result::Result<(), Failed> {
        self.wait(self.connection.client.batch_execute(sql)).await
    }

    /// Waits for a response to this connection.
    pub(super) async fn wait<T>(
        &self,
        response: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> std::result::Result<T, Failed> {
        let waited = self.deadline.wait(response).await;
        if matches!(waited, Err(Failed::Late)) {
            self.suspect_others();
        }
        waited
    }

    /// Drops the idle connections. They lead to the same server, so that each would cost a caller the whole limit.
    pub(super) fn suspect_others(&self) {
        self.pool.idle.lock().clear();
    }

    /// Gives the transaction another limit from now on.
    pub(super) fn extend(&mut self, limit: Duration) {
        self.deadline = Deadline::after(limit);
    }

    /// Returns the connection to the pool. It must have no open transaction and no outstanding response.
    pub(super) fn release(self) {
        self.pool.idle.lock().push(self.connection);
    }
}

/// Translates an error of the server or of the connection.
pub(super) fn postgres_error(error: &tokio_postgres::Error) -> Error {
    match error.code() {
        Some(code) if *code == SqlState::UNIQUE_VIOLATION => Error::Taken,
        // A failed connection, missing resources, a server that stops or starts, or a database that does not exist.
        Some(code) if ["08", "53", "57", "3D"].contains(&&code.code()[..2]) => {
            Error::Unavailable(describe_error(error))
        }
        // The server ended a transaction of which it heard nothing.
        Some(code) if *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => {
            Error::Unavailable(describe_error(error))
        }
        Some(_) => Error::Database(describe_error(error)),
        // Without a code the connection failed. The cause is one level down.
        None => match std::error::Error::source(error) {
            Some(cause) => Error::Unavailable(format!("{error}: {cause}")),
            None => Error::Unavailable(error.to_string()),
        },
    }
}

fn describe_error(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| format!("{} ({})", db.message(), db.code().code()))
}
