//! The time across restarts and jumps of the clock: what is stored of it, and the deadlines, which move with it in one
//! transaction, so that nothing becomes late or early.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::clock_jumps::Anchor;

use crate::db::params;
use crate::{Error, Result, Store, Tx, installation};

/// The key under which the installation stores the time.
const ANCHOR_KEY: &str = "clock";

/// Returns what is stored of the time. What cannot be read is as good as nothing.
pub fn anchor(tx: &mut Tx<'_>) -> Result<Anchor> {
    let kept = installation::get(tx, ANCHOR_KEY)?;
    Ok(kept.and_then(|kept| serde_json::from_str(&kept).ok()).unwrap_or_default())
}

/// Stores the time.
pub fn set_anchor(tx: &mut Tx<'_>, anchor: &Anchor) -> Result<()> {
    let text = serde_json::to_string(anchor).map_err(|error| Error::Corrupt(error.to_string()))?;
    installation::set(tx, ANCHOR_KEY, &text)
}

/// Returns the time such that what happened before it is at least `span` old, whatever jumps there were since.
pub fn passed_before(tx: &mut Tx<'_>, span: Duration) -> Result<Time> {
    Ok(anchor(tx)?.passed_before(tx.now(), span))
}

/// Returns the date by which rules that name days remove something.
pub fn calendar(tx: &mut Tx<'_>) -> Result<Time> {
    Ok(anchor(tx)?.calendar(tx.now()))
}

/// Returns the time of the database server, if the database is on one.
pub async fn server_time(store: &Store) -> Result<Option<Time>> {
    if store.generation().is_some() {
        return Ok(None);
    }
    let sql = "select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)";
    store.read(|tx| tx.single(sql, &[], |row| row.time())).await.map(Some)
}

/// Moves everything that is open and depends on the time: deadlines, leases, the line and what is remembered of calls.
/// Runners lose the requests that they work on, because they have the old deadlines in memory; they take them again.
/// Times that say when something happened stay. Returns how many requests were moved.
pub fn move_deadlines(tx: &mut Tx<'_>, by_us: i64) -> Result<u64> {
    let now = tx.now();
    let requests = "update requests set due_us = due_us + $1, deadline_us = deadline_us + $1, \
                    turn_us = case when waiting = 1 then turn_us + $1 else turn_us end, \
                    reserved_until_us = case when reserved_until_us > 0 then reserved_until_us + $1 else 0 end, \
                    epoch = case when lease_until_us > 0 then epoch + 1 else epoch end, lease_until_us = 0 \
                    where ended_us is null";
    let moved = tx.execute(requests, &params![by_us])?;
    for sql in [
        "update line_turns set reserved_us = reserved_us + $1, \
         paused_until_us = case when paused_until_us > 0 then paused_until_us + $1 else 0 end",
        "update jobs set lease_until_us = lease_until_us + $1 where ended_us is null and lease_until_us > 0",
        "update idempotency set created_us = created_us + $1",
        "update lifecycle_passes set due_us = due_us + $1",
    ] {
        tx.run(sql, &params![by_us])?;
    }
    let keys = "update s3_keys set ends_us = ends_us + $1 where revoked = 0 and ends_us > $2";
    tx.run(keys, &params![by_us, now])?;
    Ok(moved)
}

/// Has work that a clock that was set back by so much would delay done in time: leases end at `latest`, which their
/// holders renew, and what is due is due earlier. Deadlines stay, so that nothing fails before its time.
pub fn pull_forward(tx: &mut Tx<'_>, by_us: i64, latest: Time) -> Result<()> {
    let due = "update requests set due_us = due_us + $1 where ended_us is null and due_us <> deadline_us";
    tx.run(due, &params![by_us])?;
    for sql in [
        "update requests set lease_until_us = $1 where ended_us is null and lease_until_us > $1",
        "update jobs set lease_until_us = $1 where ended_us is null and lease_until_us > $1",
    ] {
        tx.run(sql, &params![latest])?;
    }
    Ok(())
}
