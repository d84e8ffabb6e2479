//! Requests: what the API shows, and what runners lease.
//!
//! A lease raises the request's epoch, and everything its holder writes is guarded by that number: a runner that lost
//! its lease can write nothing.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::ids::{ClusterId, RequestId, VolumeId};
use tarn_model::requests::{Progress, Request, RequestKind, RequestStatus, RequestType};
use tarn_model::users::Owner;

use crate::db::{Param, Row, params};
use crate::{Error, Listing, OwnerFilter, Result, Tx, counts, usage};

/// Every query of this file reads the same columns, in the order of [`read_request`].
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, type, status, user_id, org_id, cluster_id, volume_id, waiting, step, failure, attempts, due_us, ",
            "deadline_us, message, created_us, ended_us, epoch, ",
            // A change of an attachment is live if its row says so; without a row the nodes are left alone as well.
            "coalesce((select live from attachments where attachments.cluster_id = requests.cluster_id ",
            "and attachments.volume_id = requests.volume_id), 1) from requests ",
            $rest
        )
    };
}

/// How many requests are kept for a scope. Beyond that, the oldest that have ended are removed before their time.
pub const MAX_KEPT: u64 = 10_000;

/// Where a claim enters the line.
pub(crate) struct LineEntry {
    /// What claims have in common that are equal.
    pub(crate) key: String,
    /// When the claim was examined, if an equal one already waits.
    pub(crate) examined: Option<Time>,
}

/// Adds a request.
pub fn insert(tx: &mut Tx<'_>, request: &Request) -> Result<()> {
    insert_into_line(tx, request, None)
}

/// Adds a request, which may enter the line.
pub(crate) fn insert_into_line(tx: &mut Tx<'_>, request: &Request, entry: Option<&LineEntry>) -> Result<()> {
    let (cluster, volume) = request.kind.objects();
    let (key, examined) = (entry.map(|entry| entry.key.as_str()), entry.and_then(|entry| entry.examined));
    let turn = entry.map_or(0, |_| request.created.as_micros());
    let sql = "insert into requests (id, type, status, user_id, org_id, scope, step, failure, attempts, due_us, deadline_us, epoch, \
               message, created_us, ended_us, cluster_id, volume_id, waiting, line_key, examined_us, turn_us, lease_until_us) \
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, 0)";
    tx.run(
        sql,
        &params!(request: id, kind.request_type().name(), status().name(), owner.user, owner.org, owner.scope(),
            progress.step(), progress.failure(), attempts, due, deadline, epoch, message, created, ended; cluster,
            volume, request.progress == Progress::Queued, key, examined, turn),
    )?;
    trim(tx, request.owner.scope(), MAX_KEPT)?;
    if examined.is_some() && request.progress == Progress::Queued {
        counts::add_waiting(tx, request.owner.scope(), 1)?;
    }
    Ok(())
}

/// Counts a request that was added, and removes the oldest requests of its scope that have ended if there are more than
/// `max`. Each call adds one and removes up to two, so that the work is bounded and the number sinks to the limit.
fn trim(tx: &mut Tx<'_>, scope: &str, max: u64) -> Result<()> {
    if usage::add_requests(tx, scope, 1)? <= max {
        return Ok(());
    }
    let sql = "delete from requests where id in (select id from requests where scope = $1 and ended_us is not null \
               order by created_us, id limit 2)";
    match tx.execute(sql, &params![scope])? {
        0 => Ok(()),
        removed => usage::add_requests(tx, scope, -(removed as i64)).map(drop),
    }
}

/// Removes requests that ended before `expired`, at most `limit`. Returns their number.
pub(crate) fn remove_ended(tx: &mut Tx<'_>, expired: Time, limit: u32) -> Result<u64> {
    let sql = "delete from requests where id in (select id from requests where ended_us is not null and ended_us <= $1 \
               order by ended_us limit $2) returning scope";
    let scopes = tx.rows(sql, &params![expired, limit], |row| row.text())?;
    usage::subtract_each(tx, &scopes, |count| [0, count, 0])
}

/// Returns the newest request of this type of a volume that was completed.
pub fn last_completed_of_volume(tx: &mut Tx<'_>, id: &VolumeId, kind: RequestType) -> Result<Option<RequestId>> {
    let sql = "select id from requests where volume_id = $1 and type = $2 and status = 'COMPLETED' \
               order by created_us desc, id desc limit 1";
    tx.row(sql, &params![id, kind.name()], |row| row.id())
}

/// Returns the newest request of this type of a cluster that was completed.
pub fn last_completed_of_cluster(tx: &mut Tx<'_>, id: &ClusterId, kind: RequestType) -> Result<Option<RequestId>> {
    let sql = "select id from requests where cluster_id = $1 and type = $2 and status = 'COMPLETED' \
               order by created_us desc, id desc limit 1";
    tx.row(sql, &params![id, kind.name()], |row| row.id())
}

/// Saves the progress of a request. `Conflict` when the lease of this epoch was lost.
pub fn save(tx: &mut Tx<'_>, request: &Request) -> Result<()> {
    counts::change_claim(tx, request)?;
    let sql = "update requests set status = $1, step = $2, failure = $3, attempts = $4, due_us = $5, deadline_us = $6, message = $7, \
               ended_us = $8, waiting = $11 where id = $9 and epoch = $10 and ended_us is null";
    tx.execute_guarded(
        sql,
        &params!(request: status().name(), progress.step(), progress.failure(), attempts, due, deadline, message,
            ended, id, epoch; request.progress == Progress::Queued),
    )
}

/// Saves a note about what a step did, for the final message to the user. `Conflict` when the lease was lost. It is not
/// part of the progress, because a step can do something and still fail.
pub fn set_note(tx: &mut Tx<'_>, request: &Request, note: &str) -> Result<()> {
    let sql = "update requests set note = $1 where id = $2 and epoch = $3 and ended_us is null";
    tx.execute_guarded(sql, &params![note, request.id, request.epoch])
}

/// Returns the note that the steps of a request saved.
pub fn note(tx: &mut Tx<'_>, id: &RequestId) -> Result<Option<String>> {
    Ok(tx.row("select note from requests where id = $1", &params![id], |row| row.maybe_text())?.flatten())
}

/// Saves the progress of a long step, for readers in other processes. `Conflict` when the lease was lost.
pub fn set_progress(tx: &mut Tx<'_>, request: &Request, progress: &str) -> Result<()> {
    let sql = "update requests set progress = $1 where id = $2 and epoch = $3 and ended_us is null";
    tx.execute_guarded(sql, &params![progress, request.id, request.epoch])
}

/// Returns the last saved progress of a step.
pub fn progress(tx: &mut Tx<'_>, id: &RequestId) -> Result<Option<String>> {
    Ok(tx.row("select progress from requests where id = $1", &params![id], |row| row.maybe_text())?.flatten())
}

/// Returns the request with this id.
pub fn get(tx: &mut Tx<'_>, id: &RequestId) -> Result<Option<Request>> {
    tx.row(select!("where id = $1"), &params![id], read_request)
}

/// Returns the open requests of a cluster, oldest first.
pub fn open_of_cluster(tx: &mut Tx<'_>, id: &ClusterId) -> Result<Vec<Request>> {
    let sql = select!("where cluster_id = $1 and ended_us is null order by created_us, id");
    tx.rows(sql, &params![id], read_request)
}

/// Returns whether a request is changing a cluster.
pub fn is_cluster_busy(tx: &mut Tx<'_>, id: &ClusterId) -> Result<bool> {
    tx.has_row("select 1 from requests where cluster_id = $1 and ended_us is null limit 1", &params![id])
}

/// Returns whether a request is changing a volume.
pub fn is_volume_busy(tx: &mut Tx<'_>, id: &VolumeId) -> Result<bool> {
    tx.has_row("select 1 from requests where volume_id = $1 and ended_us is null limit 1", &params![id])
}

/// Returns the open requests of a volume, oldest first.
pub fn open_of_volume(tx: &mut Tx<'_>, id: &VolumeId) -> Result<Vec<Request>> {
    let sql = select!("where volume_id = $1 and ended_us is null order by created_us, id");
    tx.rows(sql, &params![id], read_request)
}

/// Returns all requests of a cluster, newest first. An empty filter matches everything.
pub fn of_cluster(tx: &mut Tx<'_>, id: &ClusterId, kind: &str, status: &str, limit: u32) -> Result<Vec<Request>> {
    let sql = select!(
        "where cluster_id = $1 and ($2 = '' or type = $2) and ($3 = '' or status = $3) \
         order by created_us desc, id desc limit $4"
    );
    tx.rows(sql, &params![id, kind, status, limit], read_request)
}

/// Returns a page of requests, newest first. An empty type matches everything.
pub fn list(tx: &mut Tx<'_>, listing: &Listing<'_>, kind: &str, status: Option<RequestStatus>) -> Result<Vec<Request>> {
    // There are few open requests, and they have their own indexes, so that a query for them does not scan the whole
    // history.
    let open = status.is_some_and(|status| !status.is_terminal());
    let sql = match (listing.owner, open) {
        (OwnerFilter::User { .. }, false) => select!(
            "where scope = $7 and user_id = $1 and (created_us, id) < ($2, $3) and ($5 = '' or type = $5) \
             and ($6 = '' or status = $6) order by created_us desc, id desc limit $4"
        ),
        (OwnerFilter::User { .. }, true) => select!(
            "where scope = $7 and user_id = $1 and (created_us, id) < ($2, $3) and ($5 = '' or type = $5) \
             and ($6 = '' or status = $6) and ended_us is null order by created_us desc, id desc limit $4"
        ),
        (OwnerFilter::Scope(_), false) => select!(
            "where scope = $1 and (created_us, id) < ($2, $3) and ($5 = '' or type = $5) and ($6 = '' or status = $6) \
             order by created_us desc, id desc limit $4"
        ),
        (OwnerFilter::Scope(_), true) => select!(
            "where scope = $1 and (created_us, id) < ($2, $3) and ($5 = '' or type = $5) and ($6 = '' or status = $6) \
             and ended_us is null order by created_us desc, id desc limit $4"
        ),
    };
    let mut params = listing.params();
    params.extend([kind, status.map_or("", RequestStatus::name)].map(Param::Text));
    if let OwnerFilter::User { scope, .. } = listing.owner {
        params.push(Param::Text(scope));
    }
    tx.rows(sql, &params, read_request)
}

/// Leases due requests. No other runner takes them until `lease` has passed. They are returned with their new epoch.
pub fn lease_due(tx: &mut Tx<'_>, lease: Duration, limit: u32) -> Result<Vec<Request>> {
    let now = tx.now();
    let sql = select!("where ended_us is null and due_us <= $1 and lease_until_us <= $1 order by due_us, id limit $2");
    let mut leased = tx.rows(sql, &params![now, limit], read_request)?;
    for request in &mut leased {
        request.progress = request.progress.clone().lease().map_err(|refused| Error::Corrupt(refused.to_string()))?;
        let sql =
            "update requests set epoch = epoch + 1, lease_until_us = $1, status = $2 where id = $3 and epoch = $4";
        tx.execute_guarded(sql, &params![now.after(lease), request.status().name(), request.id, request.epoch])?;
        request.epoch += 1;
    }
    Ok(leased)
}

/// Extends a lease. `Conflict` when it was lost.
pub fn renew(tx: &mut Tx<'_>, request: &Request, lease: Duration) -> Result<()> {
    let until = tx.now().after(lease);
    let sql = "update requests set lease_until_us = $1 where id = $2 and epoch = $3 and ended_us is null";
    tx.execute_guarded(sql, &params![until, request.id, request.epoch])
}

/// Releases a lease, so that the next runner need not wait for it to expire.
pub fn release(tx: &mut Tx<'_>, request: &Request) -> Result<()> {
    let sql = "update requests set lease_until_us = 0 where id = $1 and epoch = $2";
    tx.run(sql, &params![request.id, request.epoch])
}

/// Ends every lease. Only for a process that is alone with the database: all former holders have stopped.
pub fn release_all(tx: &mut Tx<'_>) -> Result<u64> {
    let sql = "update requests set lease_until_us = 0, epoch = epoch + 1 where ended_us is null and lease_until_us > 0";
    tx.execute(sql, &[])
}

/// Takes a request from its runner by raising the epoch, so that the caller can change it.
pub fn fence(tx: &mut Tx<'_>, mut request: Request) -> Result<Request> {
    let sql = "update requests set epoch = epoch + 1 where id = $1 and epoch = $2";
    tx.execute_guarded(sql, &params![request.id, request.epoch])?;
    request.epoch += 1;
    Ok(request)
}

/// Returns when the next unleased request becomes due.
pub fn next_due(tx: &mut Tx<'_>) -> Result<Option<Time>> {
    let now = tx.now();
    let sql = "select due_us from requests where ended_us is null and lease_until_us <= $1 order by due_us, id limit 1";
    tx.row(sql, &params![now], |row| row.time())
}

/// Returns a page of the open requests after this one, by scope and age. That order does not change while they are
/// open.
pub fn open(tx: &mut Tx<'_>, after: Option<&Request>, limit: u32) -> Result<Vec<Request>> {
    let sql = select!(
        "where ended_us is null and (scope, created_us, id) > ($1, $2, $3) order by scope, created_us, id limit $4"
    );
    let (scope, created, id) =
        after.map_or(("", Time::ZERO, ""), |last| (last.owner.scope(), last.created, last.id.as_str()));
    tx.rows(sql, &params![scope, created, id, limit], read_request)
}

/// Returns the number of open requests.
pub fn count_open(tx: &mut Tx<'_>) -> Result<u64> {
    tx.single("select count(*) from requests where ended_us is null", &[], |row| row.count())
}

/// Returns the number of clusters that are being restored, or wait for it, after a restart of the host. Only restarts
/// requested by the engine have a note.
pub fn count_coming_back(tx: &mut Tx<'_>) -> Result<u64> {
    let sql = "select count(*) from requests \
               where ended_us is null and type = 'CLUSTER_RESTART' and note is not null";
    tx.single(sql, &[], |row| row.count())
}

/// Returns whether a cluster waits to be restored.
pub fn is_any_to_bring_back(tx: &mut Tx<'_>) -> Result<bool> {
    let sql = "select id from requests where ended_us is null and type = 'CLUSTER_RESTART' and note is not null \
               and status = 'PENDING' and due_us > $1 limit 1";
    let now = tx.now();
    tx.has_row(sql, &params![now])
}

/// Makes the requests that wait longest to be restored due now, with a new deadline, until `at_once` of them are open.
pub fn bring_back(tx: &mut Tx<'_>, at_once: u32, deadline: Time) -> Result<()> {
    let now = tx.now();
    let sql = "select count(*) from requests where ended_us is null and type = 'CLUSTER_RESTART' and note is not null \
               and (status <> 'PENDING' or due_us <= $1)";
    let under_way: u32 = tx.single(sql, &params![now], |row| row.count())?;
    let sql = "update requests set due_us = $1, deadline_us = $2 where id in \
               (select id from requests where ended_us is null and type = 'CLUSTER_RESTART' and note is not null \
                and status = 'PENDING' and due_us > $1 order by created_us, id limit $3)";
    tx.run(sql, &params![now, deadline, at_once.saturating_sub(under_way)])
}

fn read_request(row: &mut Row) -> Result<Request> {
    let id: RequestId = row.id()?;
    let (name, status) = (row.text()?, row.text()?);
    let owner = Owner { user: row.id()?, org: row.maybe_id()? };
    let (cluster, volume) = (row.maybe_id()?, row.maybe_id()?);
    let corrupt = |what: &str| Error::Corrupt(format!("request {id} of type {name} in status {status} has {what}"));
    let progress = read_progress(&status, row.flag()?, row.count()?, row.maybe_text()?);
    let progress = progress.ok_or_else(|| corrupt("an impossible progress"))?;
    let (attempts, due, deadline, message) = (row.count()?, row.time()?, row.time()?, row.maybe_text()?);
    let (created, ended) = (row.time()?, row.maybe_time()?);
    let (epoch, live) = (row.integer()?, row.flag()?);
    let kind = RequestType::from_name(&name).and_then(|name| RequestKind::new(name, cluster, volume, live));
    let kind = kind.ok_or_else(|| corrupt("an unknown type or other objects than that type"))?;
    Ok(Request { id, kind, owner, progress, attempts, due, deadline, message, created, ended, epoch })
}

/// Returns the progress that these columns stand for, if any.
fn read_progress(status: &str, waiting: bool, step: u32, failure: Option<String>) -> Option<Progress> {
    Some(match (RequestStatus::from_name(status)?, waiting, step, failure) {
        (RequestStatus::Pending, false, 0, None) => Progress::New,
        (RequestStatus::Pending | RequestStatus::Retrying, true, 0, None) => Progress::Queued,
        (RequestStatus::Processing | RequestStatus::Retrying, false, next, None) => Progress::Forward { next },
        (RequestStatus::Processing | RequestStatus::Retrying, false, left, Some(why)) => {
            Progress::Undoing { left, why }
        }
        (RequestStatus::Completed, false, steps, None) => Progress::Completed { steps },
        (RequestStatus::Failed, false, left, why) => Progress::Failed { left, why },
        _ => return None,
    })
}
