//! A database of a server that one command reads or writes as a whole, in one transaction. When the command is killed,
//! the server rolls it back.

use futures::executor::block_on;
use futures::future::try_join_all;
use tokio_postgres::types::ToSql;

use super::pool::LIMIT;
use super::{Connection, Deadline, Pool, check_collation, postgres_error};
use crate::db::Param;
use crate::db::migrations::{POSTGRES_SHAPE, Shape};
use crate::db::value::Value;
use crate::db::whole::{PAGE_ROWS, Values, WholeDatabase};
use crate::{Error, Result};

/// How many tables a message names.
const SHOWN_TABLES: usize = 5;

/// A connection that uses the database alone, in a transaction.
pub(crate) struct WholeServer {
    connection: Connection,
    is_target: bool,
}

impl WholeServer {
    /// Connects to read.
    pub(crate) async fn open_source(url: &str) -> Result<Self> {
        Self::open(url, "begin isolation level repeatable read read only", false).await
    }

    /// Connects to write into a database without tables.
    pub(crate) async fn open_target(url: &str) -> Result<Self> {
        let target = Self::open(url, "begin", true).await?;
        let sql = "select cast(relname as text) from pg_class where relkind in ('r', 'p', 'S') \
                   and relnamespace = (select oid from pg_namespace where nspname = current_schema()) order by 1";
        let rows = target.connection.client.query(sql, &[]).await.map_err(|error| postgres_error(&error))?;
        let names: Vec<String> = rows.iter().take(SHOWN_TABLES).map(|row| row.get(0)).collect();
        if names.is_empty() {
            return Ok(target);
        }
        let more = if rows.len() > SHOWN_TABLES { ", …" } else { "" };
        Err(Error::Unavailable(format!(
            "the new database is not empty, it has {}{more}: create another one (createdb --template template0 \
             --lc-collate C --lc-ctype C --encoding UTF8 NAME)",
            names.join(", ")
        )))
    }

    async fn open(url: &str, begin: &str, is_target: bool) -> Result<Self> {
        let connection = Pool::connect_alone(url).await?;
        let client = &connection.client;
        check_collation(client, Deadline::after(LIMIT)).await?;
        // One statement may take long here, and the connection idles while the other database works.
        let limits = "set statement_timeout = 0; set idle_in_transaction_session_timeout = 0; set lock_timeout = '10s'";
        client.batch_execute(limits).await.map_err(|error| postgres_error(&error))?;
        client.batch_execute(begin).await.map_err(|error| postgres_error(&error))?;
        Ok(WholeServer { connection, is_target })
    }

    fn query(&self, sql: &str) -> Result<Vec<tokio_postgres::Row>> {
        block_on(self.connection.client.query(sql, &[])).map_err(|error| postgres_error(&error))
    }
}

impl WholeDatabase for WholeServer {
    fn run(&mut self, sql: &str) -> Result<()> {
        block_on(self.connection.client.batch_execute(sql)).map_err(|error| postgres_error(&error))
    }

    fn shape(&mut self) -> Result<Shape> {
        Ok(self.query(POSTGRES_SHAPE)?.iter().map(|row| row.get(0)).collect())
    }

    fn scan(&mut self, sql: &str, take: &mut dyn FnMut(Vec<Values>) -> Result<()>) -> Result<()> {
        self.run(&format!("declare scan no scroll cursor for {sql}"))?;
        let fetch = format!("fetch {PAGE_ROWS} from scan");
        let fetch = block_on(self.connection.client.prepare(&fetch)).map_err(|error| postgres_error(&error))?;
        loop {
            let rows = block_on(self.connection.client.query(&fetch, &[])).map_err(|error| postgres_error(&error))?;
            if rows.is_empty() {
                break;
            }
            let values = rows.iter().map(|row| {
                (0..row.len())
                    .map(|column| row.try_get(column).map_err(|error| postgres_error(&error)))
                    .collect::<Result<Vec<Value>>>()
            });
            take(values.collect::<Result<_>>()?)?;
        }
        self.run("close scan")
    }

    fn insert(&mut self, sql: &str, rows: &[Values]) -> Result<()> {
        let client = &self.connection.client;
        let statement = block_on(client.prepare(sql)).map_err(|error| postgres_error(&error))?;
        let params: Vec<Vec<Param<'_>>> = rows.iter().map(|row| row.iter().map(Value::as_param).collect()).collect();
        let params: Vec<Vec<&(dyn ToSql + Sync)>> =
            params.iter().map(|row| row.iter().map(|param| param as _).collect()).collect();
        // All rows are on their way to the server before the first answer.
        let inserted = block_on(try_join_all(params.iter().map(|row| client.execute(&statement, row))));
        inserted.map(drop).map_err(|error| postgres_error(&error))
    }

    fn check_integrity(&mut self) -> Result<()> {
        // The server does not offer a check that needs no extension.
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        if self.is_target {
            // The only sequence. The next event follows the last one.
            self.run(
                "create sequence event_numbers; \
                 select setval('event_numbers', coalesce(max(number), 1), max(number) is not null) from events",
            )?;
        }
        self.run("commit")
    }
}
