//! PostgreSQL. Every write is serializable and is repeated when it loses a race. [`pool`] has the connections and the
//! limit of every transaction.

mod guard;
mod pool;
mod whole;

use std::future::Future;
use std::time::Duration;

use futures::executor::block_on;
use tarn_model::Time;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use tokio_postgres::{Client, Statement};

use super::value::Value;
use super::{Cost, Executor, Param, Row, TotalCost, migrations};
use crate::examine::Health;
use crate::{Error, Result};
use pool::{Connection, Deadline, Failed, Lease, Pool, postgres_error};

pub(crate) use whole::WholeServer;

/// How often a transaction that lost a race is tried before the error is returned to the caller.
const MAX_TRIES: u32 = 30;

/// Writers run one after the other. The lock is taken before the snapshot, so that no writer repeats its work because
/// of another, and it is held until the commit is visible, so that event numbers follow the order of commits.
const BEGIN: &str = "begin isolation level serializable; lock table events in share row exclusive mode";

/// The number of the advisory lock for migrations: an arbitrary number that only Tarn uses.
const MIGRATION_LOCK: i64 = 0x7461_726e_0001;

/// The limit of a migration, which may have to rewrite large tables, on our side and on that of the server.
const MIGRATION_LIMIT: Duration = Duration::from_secs(3600);
const SLOW_STATEMENTS: &str = "set local statement_timeout = '1h'";

/// The limit of a transaction of a command that reads or changes a whole database, and what the server is told: its
/// client may be silent for as long as `pg_dump` runs.
const COMMAND_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);
const WITHOUT_LIMIT: &str = "select set_config('statement_timeout', '0', true), \
                             set_config('idle_in_transaction_session_timeout', '0', true)";

/// A database server.
pub(crate) struct Postgres {
    pool: Pool,
    cost: TotalCost,
}

impl Postgres {
    /// Connects, checks the collation and migrates the schema.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let postgres = Postgres { pool: Pool::of_engine(url)?, cost: TotalCost::default() };
        let mut lease = postgres.pool.acquire().await?;
        check_collation(&lease.connection.client, lease.deadline).await?;
        migrate_server(&mut lease).await?;
        lease.release();
        Ok(postgres)
    }

    /// Connects for reading. Nothing is created or migrated.
    pub(crate) async fn open_read_only(url: &str) -> Result<Self> {
        let postgres = Postgres { pool: Pool::of_reader(url)?, cost: TotalCost::default() };
        postgres.pool.acquire().await?.release();
        Ok(postgres)
    }

    /// Returns what all transactions so far have cost.
    pub(crate) fn cost(&self) -> Cost {
        self.cost.read()
    }

    /// Gives transactions another limit.
    pub(crate) fn limit_transactions(&self, limit: Duration) {
        self.pool.limit(limit);
    }

    /// Returns whether the server responds, within two seconds.
    pub(crate) async fn ping(&self) -> Result<()> {
        self.pool.ping().await
    }

    /// The addresses from which engines use the database.
    pub(crate) async fn users(&self) -> Result<Vec<String>> {
        let lease = self.pool.acquire().await?;
        let users = guard::user_addresses(&lease.connection.client, lease.deadline).await?;
        lease.release();
        Ok(users)
    }

    /// The self-diagnosis of the server and the privileges of this user.
    pub(crate) async fn health(&self) -> Result<Health> {
        let lease = self.pool.acquire().await?;
        let client = &lease.connection.client;
        let sql = "select current_setting('server_version'), cast(extract(epoch from clock_timestamp()) * 1000000 as bigint), \
                   has_schema_privilege(current_schema(), 'CREATE'), 'B' < 'a' and 'a-b' < 'aa'";
        let row = lease.wait(client.query_one(sql, &[])).await?;
        let (version, now): (String, i64) = (row.get(0), row.get(1));
        // With several privileges in one call, the server returns true when any of them is granted.
        let sql = "select tablename from pg_tables, \
                   lateral (select quote_ident(schemaname) || '.' || quote_ident(tablename) as name) as quoted \
                   where schemaname = current_schema() and not (has_table_privilege(name, 'SELECT') \
                   and has_table_privilege(name, 'INSERT') and has_table_privilege(name, 'UPDATE') \
                   and has_table_privilege(name, 'DELETE')) order by tablename";
        let closed = lease.wait(client.query(sql, &[])).await?;
        let mut refused: Vec<String> = closed.iter().map(|row| row.get::<_, String>(0)).collect();
        if !row.get::<_, bool>(2) {
            refused.push("creating tables in the schema".to_owned());
        }
        let (is_byte_order, now) = (Some(row.get(3)), Some(Time::from_micros(now)));
        lease.release();
        Ok(Health { database: format!("PostgreSQL {version}"), now, is_byte_order, refused, ..Health::default() })
    }

    /// Runs a read on a consistent state.
    pub(crate) async fn read<T>(&self, work: impl FnOnce(&mut dyn Executor) -> T) -> Result<T> {
        let mut lease = self.pool.acquire().await?;
        lease.run("begin isolation level repeatable read read only").await?;
        let (result, outcome) = run_work(&mut lease, &self.cost, work);
        outcome.check()?;
        lease.run("commit").await?;
        lease.release();
        Ok(result)
    }

    /// Runs a write. When the work returns an error, the transaction is rolled back.
    pub(crate) async fn write<T, E: From<Error>>(
        &self,
        mut work: impl FnMut(&mut dyn Executor) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut lease = self.pool.acquire().await?;
        for attempt in 1..=MAX_TRIES {
            lease.run(BEGIN).await.map_err(Error::from)?;
            let (result, outcome) = run_work(&mut lease, &self.cost, &mut work);
            outcome.check()?;
            match result {
                Ok(value) => match lease.run("commit").await {
                    Ok(()) => {
                        lease.release();
                        return Ok(value);
                    }
                    Err(failed) if failed.is_lost_race() => {}
                    Err(failed) => return Err(unknown_outcome(failed).into()),
                },
                Err(error) => {
                    lease.run("rollback").await.map_err(Error::from)?;
                    if !outcome.lost_race {
                        lease.release();
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(u64::from(attempt))).await;
        }
        lease.release();
        Err(Error::Unavailable("too many writers at once".to_owned()).into())
    }
}

/// The error of a commit without a response: the server may have carried it out, so it is neither a success nor a
/// refusal. An error that the server reported is one.
fn unknown_outcome(failed: Failed) -> Error {
    match Error::from(failed) {
        Error::Unavailable(why) => Error::Unavailable(format!("whether a change was stored is not known: {why}")),
        error => error,
    }
}

/// What became of a transaction while the work ran in it.
#[derive(Clone, Copy, Default)]
struct Outcome {
    lost_race: bool,
    late: bool,
}

impl Outcome {
    /// Fails when the server did not respond: the work may have ignored that, and its result is worth nothing.
    fn check(self) -> Result<()> {
        if self.late { Err(Failed::Late.into()) } else { Ok(()) }
    }
}

/// Runs the work in this thread, which may block.
fn run_work<T>(
    lease: &mut Lease<'_>,
    total_cost: &TotalCost,
    work: impl FnOnce(&mut dyn Executor) -> T,
) -> (T, Outcome) {
    let (deadline, outcome, cost) = (lease.deadline, Outcome::default(), Cost::default());
    let mut session = Session { connection: &mut lease.connection, deadline, outcome, cost };
    let result = tokio::task::block_in_place(|| work(&mut session));
    let (outcome, deadline) = (session.outcome, session.deadline);
    total_cost.add(session.cost);
    // The commit has the limit of the work, which may have lifted it.
    lease.deadline = deadline;
    if outcome.late {
        lease.suspect_others();
    }
    (result, outcome)
}

async fn check_collation(client: &Client, deadline: Deadline) -> Result<()> {
    // Checks how the server sorts instead of the name of its collation: ICU has other names for it.
    let sql = "select 'B' < 'a' and 'a-b' < 'aa'";
    let is_byte_order: bool = deadline.wait(client.query_one(sql, &[])).await?.get(0);
    if is_byte_order {
        Ok(())
    } else {
        Err(Error::Schema(
            "the database does not sort by bytes, and lists need that: create it with lc_collate 'C' from template0"
                .to_owned(),
        ))
    }
}

/// Migrates the schema. Until it is known that there is something to do, the limit is that of any transaction: a server
/// that hangs is noticed, and so is another replica that migrates.
async fn migrate_server(lease: &mut Lease<'_>) -> Result<()> {
    lease.run("begin").await?;
    let client: &Client = &lease.connection.client;
    lease.wait(client.execute("select pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK])).await?;
    lease.run(migrations::TABLE).await?;
    lease.run("create sequence if not exists event_numbers").await?;
    let names = lease.wait(client.query(migrations::POSTGRES_SHAPE, &[])).await?;
    let shape = names.iter().map(|row| row.get(0)).collect();
    for statement in migrations::missing_columns(&shape) {
        lease.run(&statement).await?;
    }
    let rows = lease.wait(client.query(migrations::ROWS, &[])).await?;
    let recorded: Vec<_> = rows
        .iter()
        .map(|row| migrations::Recorded { version: row.get(0), hash: row.get(1), program: row.get(2) })
        .collect();
    let plan = migrations::plan(&recorded, shape)?;
    if !plan.is_empty() {
        lease.run(SLOW_STATEMENTS).await?;
        lease.extend(MIGRATION_LIMIT);
    }
    for statements in plan {
        lease.run(&statements).await?;
    }
    Ok(lease.run("commit").await?)
}

/// A connection with an open transaction, used from a thread that may block.
///
/// It blocks with its own executor. The Tokio runtime has one slot per thread for a wake-up: when a thread waits inside
/// another wait, the inner wait consumes the wake-up of the outer one, and the outer one is never woken again.
struct Session<'c> {
    connection: &'c mut Connection,
    deadline: Deadline,
    outcome: Outcome,
    cost: Cost,
}

impl Session<'_> {
    /// Blocks until the server responds or the deadline passes. After that nothing is sent any more.
    fn wait<T>(
        deadline: Deadline,
        outcome: &mut Outcome,
        response: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        block_on(deadline.wait(response)).map_err(|failed| {
            outcome.lost_race |= failed.is_lost_race();
            outcome.late |= matches!(failed, Failed::Late);
            failed.into()
        })
    }

    fn prepare_statement(&mut self, sql: &'static str) -> Result<Statement> {
        if let Some(statement) = self.connection.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = Self::wait(self.deadline, &mut self.outcome, self.connection.client.prepare(sql))?;
        self.connection.statements.insert(sql, statement.clone());
        Ok(statement)
    }
}

impl Executor for Session<'_> {
    fn query(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let statement = self.prepare_statement(sql)?;
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param as _).collect();
        let rows = self.connection.client.query(&statement, &params);
        let rows = Self::wait(self.deadline, &mut self.outcome, rows)?;
        self.cost.statements += 1;
        self.cost.rows += rows.len() as u64;
        rows.iter()
            .map(|row| {
                let values = (0..row.len()).map(|column| row.try_get(column).map_err(|error| postgres_error(&error)));
                values.collect::<Result<Vec<Value>>>().map(Row::new)
            })
            .collect()
    }

    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> Result<u64> {
        let statement = self.prepare_statement(sql)?;
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param as _).collect();
        self.cost.statements += 1;
        Self::wait(self.deadline, &mut self.outcome, self.connection.client.execute(&statement, &params))
    }

    fn next_event_number(&mut self) -> Result<i64> {
        // Writers run one after the other (see [`BEGIN`]), so numbers follow the order of commits.
        let mut rows = self.query("select nextval('event_numbers')", &[])?;
        rows.first_mut().ok_or_else(|| Error::Corrupt("no number".to_owned()))?.integer()
    }

    fn lift_limit(&mut self) -> Result<()> {
        // The settings end with the transaction.
        self.query(WITHOUT_LIMIT, &[])?;
        self.deadline = Deadline::after(COMMAND_LIMIT);
        Ok(())
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
