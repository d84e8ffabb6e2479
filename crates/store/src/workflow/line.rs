//! The capacity queue, "the line": the claims that wait, and which of them reserves capacity.
//!
//! Claims of one organization that need the same are equal: only the oldest of them has to be examined. So an
//! examination reads one row for each organization and each amount that is waited for, however long the line is, and no
//! number of claims hides those of another organization.

use tarn_model::Time;
use tarn_model::capacity::{Claim, HeldCapacity};
use tarn_model::ids::RequestId;
use tarn_model::line::{Candidate, Holding, Holdings, Place, Reservation, Waiting};
use tarn_model::requests::Request;

use crate::db::{Row, params};
use crate::instances::read_shape;
use crate::requests::{self, LineEntry};
use crate::{Result, Tx, counts};

/// Every query of this file that reads a claim reads the same columns, in the order of [`read_waiting`]. The cross
/// joins keep SQLite from beginning with another table.
macro_rules! select {
    ($from:literal) => {
        concat!(
            "select r.id, r.scope, r.created_us, c.num_nodes, i.cpu_milli, i.memory_bytes, i.gpu_count, i.gpu_model ",
            "from ",
            $from,
            " cross join requests r cross join clusters c cross join instances i ",
            "where r.id = first.id and c.id = r.cluster_id and i.cluster_id = c.id and i.node = 0"
        )
    };
}

/// Returns what claims of one organization have in common if they need the same.
fn key(scope: &str, claim: &Claim) -> String {
    let Claim { shape, nodes } = claim;
    let model = shape.gpu_model.as_deref().unwrap_or_default();
    format!("{scope} {nodes}x{}/{}/{}/{model}", shape.cpu_milli, shape.memory_bytes, shape.gpus)
}

/// Adds a request that waits for capacity. If an equal claim was examined and waits, this one need not be examined
/// before that one has left the line: it sleeps until its deadline or until it is woken.
pub fn enter(tx: &mut Tx<'_>, request: &Request, claim: &Claim) -> Result<()> {
    let (now, key) = (tx.now(), key(request.owner.scope(), claim));
    let sql = "select id from requests where waiting = 1 and line_key = $1 and examined_us is not null \
               order by created_us, id limit 1";
    let is_behind = tx.has_row(sql, &params![key])?;
    let due = if is_behind { request.deadline } else { request.due };
    let entry = LineEntry { key, examined: is_behind.then_some(now) };
    requests::insert_into_line(tx, &Request { due, ..request.clone() }, Some(&entry))
}

/// Records that a claim was examined and did not fit.
pub fn set_examined(tx: &mut Tx<'_>, id: &RequestId) -> Result<()> {
    let now = tx.now();
    let sql = "update requests set examined_us = $1 where id = $2 and examined_us is null returning scope, waiting";
    match tx.row(sql, &params![now, id], |row| Ok((row.text()?, row.flag()?)))? {
        Some((scope, true)) => counts::add_waiting(tx, &scope, 1),
        Some((_, false)) | None => Ok(()),
    }
}

/// Returns the oldest claim of each organization and each amount that is waited for; at most `limit`.
pub fn firsts(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<Waiting>> {
    let sql = concat!(
        "with recursive keys(line_key) as (",
        "select (select line_key from requests where waiting = 1 and line_key is not null order by line_key limit 1) ",
        "union all select (select r.line_key from requests r where r.waiting = 1 and r.line_key > keys.line_key ",
        "order by r.line_key limit 1) from keys where keys.line_key is not null) ",
        select!(
            "(select (select q.id from requests q where q.waiting = 1 and q.line_key = keys.line_key \
             order by q.created_us, q.id limit 1) as id from keys where keys.line_key is not null limit $1) as first"
        )
    );
    tx.rows(sql, &params![limit], read_waiting)
}

/// Returns the next claims that are equal to this one, oldest first.
pub fn next_equals(tx: &mut Tx<'_>, after: &Place, limit: u32) -> Result<Vec<Waiting>> {
    let sql = concat!(
        select!(
            "(select q.id from requests q where q.waiting = 1 \
             and q.line_key = (select line_key from requests where id = $2) and (q.created_us, q.id) > ($1, $2) \
             order by q.created_us, q.id limit $3) as first"
        ),
        " order by r.created_us, r.id"
    );
    tx.rows(sql, &params![after.since, after.request, limit], read_waiting)
}

/// Returns the claim that reserves capacity, and until when.
pub fn reserving(tx: &mut Tx<'_>) -> Result<Option<(Waiting, Time)>> {
    let now = tx.now();
    let sql = "select id, reserved_until_us from requests where waiting = 1 and reserved_until_us > 0 \
               and reserved_until_us > $1 order by reserved_until_us desc limit 1";
    let found = tx.row(sql, &params![now], |row| Ok((row.id::<RequestId>()?, row.time()?)))?;
    let Some((id, until)) = found else { return Ok(None) };
    Ok(get(tx, &id)?.map(|waiting| (waiting, until)))
}

/// Returns a claim.
pub fn get(tx: &mut Tx<'_>, id: &RequestId) -> Result<Option<Waiting>> {
    let sql = select!("(select id from requests where id = $1 and waiting = 1) as first");
    tx.row(sql, &params![id], read_waiting)
}

/// Returns for each organization that waits which of its claims reserves next: the one that entered the line or last
/// reserved before all others. At most `limit` organizations are considered.
pub fn candidates(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<Candidate>> {
    let sql = "with recursive scopes(scope) as (\
               select (select scope from requests where waiting = 1 order by scope limit 1) \
               union all select (select r.scope from requests r where r.waiting = 1 and r.scope > scopes.scope \
               order by r.scope limit 1) from scopes where scopes.scope is not null) \
               select r.id, r.scope, r.turn_us, coalesce(t.reserved_us, 0), coalesce(t.paused_until_us, 0) \
               from (select (select q.id from requests q where q.waiting = 1 and q.scope = scopes.scope \
               order by q.turn_us, q.id limit 1) as id from scopes where scopes.scope is not null limit $1) as first \
               cross join requests r left join line_turns t on t.scope = r.scope where r.id = first.id";
    tx.rows(sql, &params![limit], |row| {
        let (request, scope, since) = (row.id()?, row.text()?, row.time()?);
        Ok(Candidate { request, scope, since, last_turn: row.time()?, paused_until: row.time()? })
    })
}

/// Begins the reservation of a claim.
pub fn reserve(tx: &mut Tx<'_>, candidate: &Candidate, reservation: &Reservation) -> Result<()> {
    let now = tx.now();
    let sql = "update requests set turn_us = $1, reserved_until_us = $2 where id = $3 and waiting = 1";
    tx.execute_guarded(sql, &params![now, reservation.until, candidate.request])?;
    let sql = "insert into line_turns (scope, reserved_us, paused_until_us) values ($1, $2, $3) \
               on conflict (scope) do update set reserved_us = excluded.reserved_us, \
               paused_until_us = excluded.paused_until_us";
    tx.run(sql, &params![candidate.scope, now, reservation.paused_until])
}

/// Ends the pause of an organization, because the claim that reserved for it has started.
pub fn end_pause(tx: &mut Tx<'_>, scope: &str) -> Result<()> {
    tx.run("update line_turns set paused_until_us = 0 where scope = $1", &params![scope])
}

/// Returns when a claim entered the line or last began to reserve.
pub fn turn(tx: &mut Tx<'_>, id: &RequestId) -> Result<Time> {
    tx.single("select turn_us from requests where id = $1", &params![id], |row| row.time())
}

/// Has the line examined: makes one of its requests due, because capacity may have become free. It is the oldest that
/// no runner has leased, since the runner of a leased one may be dead.
pub fn wake(tx: &mut Tx<'_>) -> Result<()> {
    let now = tx.now();
    let sql = "select id from requests where waiting = 1 and lease_until_us <= $1 order by created_us, id limit 1";
    let first: Option<RequestId> = match tx.row(sql, &params![now], |row| row.id())? {
        Some(id) => Some(id),
        None => {
            let sql = "select id from requests where waiting = 1 order by created_us, id limit 1";
            tx.row(sql, &[], |row| row.id())?
        }
    };
    first.map_or(Ok(()), |id| wake_at(tx, &id, now))
}

/// Makes a claim due at a time, unless it is due before.
pub fn wake_at(tx: &mut Tx<'_>, id: &RequestId, at: Time) -> Result<()> {
    let sql = "update requests set due_us = $1 where id = $2 and waiting = 1 and due_us > $1";
    tx.execute(sql, &params![at, id]).map(drop)
}

/// Returns the places of the claims in the line, oldest first; at most `limit`.
pub fn places(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<Place>> {
    let sql = "select id, scope, created_us from requests where waiting = 1 order by created_us, id limit $1";
    tx.rows(sql, &params![limit], read_place)
}

/// Returns the length of the line, counted up to `limit`.
pub fn length(tx: &mut Tx<'_>, limit: u32) -> Result<u64> {
    let sql = "select count(*) from (select 1 from requests where waiting = 1 limit $1) as line";
    tx.single(sql, &params![limit], |row| row.count())
}

/// Returns how many claims of an organization were examined and wait, and how many are in the line, both counted among
/// the first `limit`.
pub fn lengths_of(tx: &mut Tx<'_>, scope: &str, limit: u32) -> Result<(u64, u64)> {
    let sql = "select count(examined_us), count(*) from \
               (select examined_us from requests where waiting = 1 and scope = $1 order by turn_us, id limit $2) as line";
    tx.single(sql, &params![scope, limit], |row| Ok((row.count()?, row.count()?)))
}

/// Returns what each organization holds.
pub fn holdings(tx: &mut Tx<'_>) -> Result<Holdings> {
    let sql = "select c.scope, cast(sum(i.cpu_milli) as bigint), cast(sum(i.memory_bytes) as bigint), \
               cast(sum(i.gpu_count) as bigint) from instances i cross join clusters c \
               where i.holds_capacity = 1 and c.id = i.cluster_id group by c.scope";
    let holding = |row: &mut Row| {
        let scope = row.text()?;
        Ok((scope, Holding { cpu_milli: row.count()?, memory_bytes: row.count()?, gpus: row.count()? }))
    };
    Ok(tx.rows(sql, &[], holding)?.into_iter().collect())
}

/// Returns the part of what is held that is being released, because its clusters are being destroyed.
pub fn releasing(tx: &mut Tx<'_>) -> Result<HeldCapacity> {
    let sql = "select cpu_milli, memory_bytes, gpus from instances where holds_capacity = 1 and state = 'DESTROYING'";
    let mut all = HeldCapacity::default();
    for mut row in tx.query(sql, &[])? {
        let (cpu_milli, memory_bytes): (u64, u64) = (row.count()?, row.count()?);
        all.cpu_milli = all.cpu_milli.saturating_add(cpu_milli);
        all.memory_bytes = all.memory_bytes.saturating_add(memory_bytes);
        all.gpus.extend(row.text()?.split(',').filter(|gpu| !gpu.is_empty()).map(str::to_owned));
    }
    Ok(all)
}

fn read_place(row: &mut Row) -> Result<Place> {
    Ok(Place { request: row.id()?, scope: row.text()?, since: row.time()? })
}

fn read_waiting(row: &mut Row) -> Result<Waiting> {
    let (place, nodes) = (read_place(row)?, row.count()?);
    Ok(Waiting { place, claim: Claim { nodes, shape: read_shape(row)? } })
}
