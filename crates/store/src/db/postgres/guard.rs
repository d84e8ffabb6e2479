//! Who may use a database: every connection of an engine holds a lock together with the others, and a command that
//! needs the database for itself takes it alone. The server releases it with the connection, however that ends.

use std::time::Duration;

use tokio_postgres::{Client, SimpleQueryMessage};

use super::Deadline;
use crate::{Error, Result};

/// The number of the advisory lock: an arbitrary number that only Tarn uses.
const USE_LOCK: i64 = 0x7461_726e_0002;

/// How often a command tries to get a database for itself, and the pause between: the server needs a moment to notice
/// that an engine has ended.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// Prepares the connection of an engine, with the statements of every session.
pub(super) async fn join_users(client: &Client, deadline: Deadline, session: &str) -> Result<()> {
    let sql = format!("{session}; select pg_try_advisory_lock_shared({USE_LOCK})");
    if run_for_flag(client, deadline, &sql).await? {
        return Ok(());
    }
    // An engine that waited would continue on the old database when the copy is complete.
    Err(Error::Schema(
        "`tarn admin migrate` copies this database at the moment; start the engine again when that has ended"
            .to_owned(),
    ))
}

/// Takes the database for this connection alone. An error if an engine uses it.
pub(super) async fn use_alone(client: &Client, deadline: Deadline) -> Result<()> {
    for _ in 0..TRIES {
        if run_for_flag(client, deadline, &format!("select pg_try_advisory_lock({USE_LOCK})")).await? {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    let users = user_addresses(client, deadline).await?;
    let from = if users.is_empty() { String::new() } else { format!(" (connected from {})", users.join(", ")) };
    Err(Error::Unavailable(format!(
        "an engine, or another command of Tarn, uses it{from}: stop every engine on it and try again"
    )))
}

/// The addresses from which the lock is held.
pub(super) async fn user_addresses(client: &Client, deadline: Deadline) -> Result<Vec<String>> {
    let sql = "select distinct coalesce(host(users.client_addr), 'this host') from pg_locks locks \
               join pg_stat_activity users on users.pid = locks.pid \
               where locks.locktype = 'advisory' and locks.granted and locks.objsubid = 1 \
               and locks.database = (select oid from pg_database where datname = current_database()) \
               and locks.classid::bigint = $1 and locks.objid::bigint = $2 order by 1";
    let (high, low) = (USE_LOCK >> 32, USE_LOCK & 0xffff_ffff);
    let rows = deadline.wait(client.query(sql, &[&high, &low])).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Runs statements in one round trip, the last of which returns true or false.
async fn run_for_flag(client: &Client, deadline: Deadline, sql: &str) -> Result<bool> {
    let messages = deadline.wait(client.simple_query(sql)).await?;
    Ok(messages.iter().any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t"))))
}
