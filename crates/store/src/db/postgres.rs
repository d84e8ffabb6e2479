//! PostgreSQL: a bounded pool of connections. Every write is serializable and is repeated when it loses a race.

mod guard;
mod whole;

use std::collections::HashMap;
use std::time::Duration;

use futures::executor::block_on;
use parking_lot::Mutex;
use tarn_model::Time;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use tokio_postgres::{Client, NoTls, Statement};

use super::value::Value;
use super::{Executor, Param, Row, migrations};
use crate::examine::Health;
use crate::{Error, Result};

pub(crate) use whole::WholeServer;

/// The maximum number of connections of one process.
const MAX_CONNECTIONS: usize = 16;

/// How often a transaction that lost a race is tried before the error is returned to the caller.
const MAX_TRIES: u32 = 30;

/// The timeout for a free connection and for network operations.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Writers run one after the other. The lock is taken before the snapshot, so that no writer repeats its work because
/// of another, and it is held until the commit is visible, so that event numbers follow the order of commits.
const BEGIN: &str = "begin isolation level serializable; lock table events in share row exclusive mode";

/// The number of the advisory lock for migrations: an arbitrary number that only Tarn uses.
const MIGRATION_LOCK: i64 = 0x7461_726e_0001;

/// A database server.
pub(crate) struct Postgres {
    config: tokio_postgres::Config,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
    /// Whether the connections belong to an engine.
    is_engine: bool,
}

struct Connection {
    client: Client,
    statements: HashMap<&'static str, Statement>,
}

impl Postgres {
    /// Connects, checks the collation and migrates the schema.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let postgres = Postgres { is_engine: true, ..Self::connector(url)? };
        let connection = postgres.connect().await?;
        check_collation(&connection.client).await?;
        migrate_server(&connection.client).await?;
        postgres.release_connection(connection);
        Ok(postgres)
    }

    /// Connects for reading. Nothing is created or migrated.
    pub(crate) async fn open_read_only(url: &str) -> Result<Self> {
        let mut postgres = Self::connector(url)?;
        postgres.config.options("-c default_transaction_read_only=on");
        let connection = postgres.connect().await?;
        postgres.release_connection(connection);
        Ok(postgres)
    }

    /// A pool without connections.
    fn connector(url: &str) -> Result<Self> {
        // The error must not repeat the address: it holds a password.
        let config: tokio_postgres::Config =
            url.parse().map_err(|_| Error::Unavailable("the database address cannot be understood".to_owned()))?;
        let (idle, permits) = (Mutex::new(Vec::new()), Semaphore::new(MAX_CONNECTIONS));
        Ok(Postgres { config: with_timeouts(config), idle, permits, is_engine: false })
    }

    /// The self-diagnosis of the server and the privileges of this user.
    pub(crate) async fn health(&self) -> Result<Health> {
        let (_permit, connection) = self.acquire_connection().await?;
        let client = &connection.client;
        let sql = "select current_setting('server_version'), cast(extract(epoch from clock_timestamp()) * 1000000 as bigint), \
                   has_schema_privilege(current_schema(), 'CREATE'), 'B' < 'a' and 'a-b' < 'aa'";
        let row = client.query_one(sql, &[]).await.map_err(postgres_error)?;
        let (version, now): (String, i64) = (row.get(0), row.get(1));
        // With several privileges in one call, the server returns true when any of them is granted.
        let sql = "select tablename from pg_tables, \
                   lateral (select quote_ident(schemaname) || '.' || quote_ident(tablename) as name) as quoted \
                   where schemaname = current_schema() and not (has_table_privilege(name, 'SELECT') \
                   and has_table_privilege(name, 'INSERT') and has_table_privilege(name, 'UPDATE') \
                   and has_table_privilege(name, 'DELETE')) order by tablename";
        let closed = client.query(sql, &[]).await.map_err(postgres_error)?;
        let mut refused: Vec<String> = closed.iter().map(|row| row.get::<_, String>(0)).collect();
        if !row.get::<_, bool>(2) {
            refused.push("creating tables in the schema".to_owned());
        }
        let (is_byte_order, now) = (Some(row.get(3)), Some(Time::from_micros(now)));
        self.release_connection(connection);
        Ok(Health { database: format!("PostgreSQL {version}"), now, is_byte_order, refused, ..Health::default() })
    }

    /// Runs a read on a consistent state.
    pub(crate) async fn read<T>(&self, work: impl FnOnce(&mut dyn Executor) -> T) -> Result<T> {
        let (_permit, mut connection) = self.acquire_connection().await?;
        let begin = "begin isolation level repeatable read read only";
        connection.client.batch_execute(begin).await.map_err(postgres_error)?;
        let mut session = Session { connection: &mut connection, lost_race: false };
        let result = tokio::task::block_in_place(|| work(&mut session));
        connection.client.batch_execute("commit").await.map_err(postgres_error)?;
        self.release_connection(connection);
        Ok(result)
    }

    /// Runs a write. When the work returns an error, the transaction is rolled back.
    pub(crate) async fn write<T, E: From<Error>>(
        &self,
        mut work: impl FnMut(&mut dyn Executor) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let (_permit, mut connection) = self.acquire_connection().await?;
        for attempt in 1..=MAX_TRIES {
            connection.client.batch_execute(BEGIN).await.map_err(postgres_error)?;
            let mut session = Session { connection: &mut connection, lost_race: false };
            let result = tokio::task::block_in_place(|| work(&mut session));
            let lost_race = session.lost_race;
            match result {
                Ok(value) => match connection.client.batch_execute("commit").await {
                    Ok(()) => {
                        self.release_connection(connection);
                        return Ok(value);
                    }
                    Err(error) if is_lost_race(&error) => {}
                    Err(error) => return Err(postgres_error(error).into()),
                },
                Err(error) => {
                    connection.client.batch_execute("rollback").await.map_err(postgres_error)?;
                    if !lost_race {
                        self.release_connection(connection);
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(u64::from(attempt))).await;
        }
        self.release_connection(connection);
        Err(Error::Unavailable("too many writers at once".to_owned()).into())
    }

    async fn acquire_connection(&self) -> Result<(SemaphorePermit<'_>, Connection)> {
        let waited = tokio::time::timeout(TIMEOUT, self.permits.acquire()).await;
        let permit = waited.map_err(|_| Error::Unavailable("every connection is busy".to_owned()))?;
        let permit = permit.map_err(|error| Error::Unavailable(error.to_string()))?;
        let idle = self.idle.lock().pop();
        match idle {
            Some(connection) if !connection.client.is_closed() => Ok((permit, connection)),
            _ => Ok((permit, self.connect().await?)),
        }
    }

    /// Returns a connection to the pool. It must have no open transaction; a failed connection is dropped instead,
    /// which closes it.
    fn release_connection(&self, connection: Connection) {
        self.idle.lock().push(connection);
    }

    async fn connect(&self) -> Result<Connection> {
        let (client, driver) = self.config.connect(NoTls).await.map_err(postgres_error)?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a database connection ended");
            }
        });
        if self.is_engine {
            guard::join_users(&client).await?;
        } else {
            client.batch_execute("set statement_timeout = '30s'").await.map_err(postgres_error)?;
        }
        Ok(Connection { client, statements: HashMap::new() })
    }
}

/// Adds timeouts, so that a server that does not respond cannot block a caller for ever.
fn with_timeouts(mut config: tokio_postgres::Config) -> tokio_postgres::Config {
    config.connect_timeout(TIMEOUT).tcp_user_timeout(TIMEOUT).keepalives_idle(TIMEOUT);
    config
}

async fn check_collation(client: &Client) -> Result<()> {
    // Checks how the server sorts instead of the name of its collation: ICU has other names for it.
    let sql = "select 'B' < 'a' and 'a-b' < 'aa'";
    let is_byte_order: bool = client.query_one(sql, &[]).await.map_err(postgres_error)?.get(0);
    if is_byte_order {
        Ok(())
    } else {
        Err(Error::Unavailable(
            "the database does not sort by bytes, and lists need that: create it with lc_collate 'C' from template0"
                .to_owned(),
        ))
    }
}

async fn migrate_server(client: &Client) -> Result<()> {
    client.batch_execute("begin").await.map_err(postgres_error)?;
    client.execute("select pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await.map_err(postgres_error)?;
    client.batch_execute(migrations::TABLE).await.map_err(postgres_error)?;
    client.batch_execute("create sequence if not exists event_numbers").await.map_err(postgres_error)?;
    let names = client.query(migrations::POSTGRES_SHAPE, &[]).await.map_err(postgres_error)?;
    let shape = names.iter().map(|row| row.get(0)).collect();
    for statement in migrations::missing_columns(&shape) {
        client.batch_execute(&statement).await.map_err(postgres_error)?;
    }
    let rows = client.query(migrations::ROWS, &[]).await.map_err(postgres_error)?;
    let recorded: Vec<_> = rows
        .iter()
        .map(|row| migrations::Recorded { version: row.get(0), hash: row.get(1), program: row.get(2) })
        .collect();
    for statements in migrations::plan(&recorded, shape)? {
        client.batch_execute(&statements).await.map_err(postgres_error)?;
    }
    client.batch_execute("commit").await.map_err(postgres_error)
}

/// A connection with an open transaction, used from a thread that may block.
///
/// It blocks with its own executor. The Tokio runtime has one slot per thread for a wake-up: when a thread waits inside
/// another wait, the inner wait consumes the wake-up of the outer one, and the outer one is never woken again.
struct Session<'c> {
    connection: &'c mut Connection,
    lost_race: bool,
}

impl Session<'_> {
    fn note_error(&mut self, error: tokio_postgres::Error) -> Error {
        self.lost_race |= is_lost_race(&error);
        postgres_error(error)
    }

    fn prepare_statement(&mut self, sql: &'static str) -> Result<Statement> {
        if let Some(statement) = self.connection.statements.get(sql) {
            return Ok(statement.clone());
        }
        let prepared = block_on(self.connection.client.prepare(sql));
        let statement = prepared.map_err(|error| self.note_error(error))?;
        self.connection.statements.insert(sql, statement.clone());
        Ok(statement)
    }
}

impl Executor for Session<'_> {
    fn query(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let statement = self.prepare_statement(sql)?;
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param as _).collect();
        let rows = block_on(self.connection.client.query(&statement, &params));
        let rows = rows.map_err(|error| self.note_error(error))?;
        rows.iter()
            .map(|row| {
                let values = (0..row.len()).map(|column| row.try_get(column).map_err(postgres_error));
                values.collect::<Result<Vec<Value>>>().map(Row::new)
            })
            .collect()
    }

    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64> {
        let statement = self.prepare_statement(sql)?;
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param as _).collect();
        let changed = block_on(self.connection.client.execute(&statement, &params));
        changed.map_err(|error| self.note_error(error))
    }

    fn next_event_number(&mut self) -> Result<i64> {
        // Writers run one after the other (see [`BEGIN`]), so numbers follow the order of commits.
        let mut rows = self.query("select nextval('event_numbers')", &[])?;
        rows.first_mut().ok_or_else(|| Error::Corrupt("no number".to_owned()))?.integer()
    }
}

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Param::Text(text) => text.to_sql(kind, out),
            Param::Integer(number) => number.to_sql(kind, out),
            Param::Bytes(bytes) => bytes.to_sql(kind, out),
            Param::Null => Ok(IsNull::Yes),
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::TEXT | Type::INT8 | Type::BYTEA)
    }

    to_sql_checked!();
}

impl<'r> FromSql<'r> for Value {
    fn from_sql(kind: &Type, raw: &'r [u8]) -> std::result::Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        match *kind {
            Type::TEXT => String::from_sql(kind, raw).map(Value::Text),
            Type::INT8 => i64::from_sql(kind, raw).map(Value::Integer),
            Type::INT4 => i32::from_sql(kind, raw).map(|number| Value::Integer(number.into())),
            _ => Vec::from_sql(kind, raw).map(Value::Bytes),
        }
    }

    fn from_sql_null(_: &Type) -> std::result::Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Value::Null)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::TEXT | Type::INT8 | Type::INT4 | Type::BYTEA)
    }
}

fn is_lost_race(error: &tokio_postgres::Error) -> bool {
    let codes = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
    error.code().is_some_and(|code| codes.contains(&code))
}

fn postgres_error(error: tokio_postgres::Error) -> Error {
    match error.code() {
        Some(code) if *code == SqlState::UNIQUE_VIOLATION => Error::Taken,
        // A failed connection, missing resources, a server that stops or starts, or a database that does not exist.
        Some(code) if ["08", "53", "57", "3D"].contains(&&code.code()[..2]) => {
            Error::Unavailable(describe_error(&error))
        }
        Some(_) => Error::Database(describe_error(&error)),
        // Without a code the connection failed. The cause is one level down.
        None => match std::error::Error::source(&error) {
            Some(cause) => Error::Unavailable(format!("{error}: {cause}")),
            None => Error::Unavailable(error.to_string()),
        },
    }
}

fn describe_error(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| format!("{} ({})", db.message(), db.code().code()))
}
