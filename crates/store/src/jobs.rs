//! Jobs: rows, lookups, lists, whose turn it is, and who drives them.
//!
//! Whoever drives a job holds its lease: every write of his names the epoch that the lease gave him, so that one who lost it can
//! write nothing.

use std::time::Duration;

use tarn_model::Time;
use tarn_model::ids::{ClusterId, JobId};
use tarn_model::jobs::{Job, State, Teardown};
use tarn_model::users::Owner;

use crate::db::Row;
use crate::{Error, Listing, Result, Tx, Whose};

/// Every query of this file reads the same columns, in the order of [`read`].
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, user_id, org_id, cluster_id, instance_type, name, config, teardown, archive_bytes, state, outcome, ",
            "since_us, attempt, note, log_bytes, created_us, queued_us, started_us, ended_us, version, epoch from jobs ",
            $rest
        )
    };
}

/// A job in the hands of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The job.
    pub job: Job,
    /// The number of the lease.
    pub epoch: i64,
}

/// Adds a new job.
pub fn insert(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let sql = "insert into jobs (id, scope, user_id, org_id, cluster_id, instance_type, name, config, teardown, archive_bytes, \
               state, outcome, since_us, attempt, note, log_bytes, removing, created_us, queued_us, started_us, ended_us, \
               lease_until_us, epoch, version) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 0, 0, \
               $16, $17, $18, $19, 0, 0, $20)";
    let (config, outcome) = (json(&job.config)?, outcome_of(job)?);
    tx.execute(
        sql,
        &[
            job.id.as_str().into(),
            job.owner.scope().into(),
            job.owner.user.as_str().into(),
            job.owner.org.as_ref().map(|org| org.as_str()).into(),
            job.cluster.as_str().into(),
            (&job.instance_type).into(),
            (&job.name).into(),
            (&config).into(),
            teardown_number(job.teardown).into(),
            job.archive_bytes.into(),
            job.state.name().into(),
            outcome.as_deref().into(),
            job.since.into(),
            job.attempt.into(),
            job.note.as_deref().into(),
            job.created.into(),
            job.queued.into(),
            job.started.into(),
            job.ended.into(),
            job.version.into(),
        ],
    )?;
    Ok(())
}

/// Saves what can change but for the length of the log, which is its driver's; `Conflict` when it was changed since it was
/// read.
pub fn save(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let sql = "update jobs set teardown = $1, archive_bytes = $2, state = $3, outcome = $4, since_us = $5, attempt = $6, \
               note = $7, queued_us = $8, started_us = $9, ended_us = $10, version = version + 1 \
               where id = $11 and version = $12";
    let outcome = outcome_of(job)?;
    tx.execute_guarded(
        sql,
        &[
            teardown_number(job.teardown).into(),
            job.archive_bytes.into(),
            job.state.name().into(),
            outcome.as_deref().into(),
            job.since.into(),
            job.attempt.into(),
            job.note.as_deref().into(),
            job.queued.into(),
            job.started.into(),
            job.ended.into(),
            job.id.as_str().into(),
            job.version.into(),
        ],
    )
}

/// The job of this id, whoever owns it, unless it was deleted.
pub fn get(tx: &mut Tx<'_>, id: &JobId) -> Result<Option<Job>> {
    tx.query_one(select!("where id = $1 and removing = 0"), &[id.as_str().into()])?.map(read).transpose()
}

/// The job in the hands of the driver who got this epoch; `Conflict` when it is in them no more.
pub fn leased(tx: &mut Tx<'_>, id: &JobId, epoch: i64) -> Result<Job> {
    let sql = select!("where id = $1 and epoch = $2 and ended_us is null");
    tx.query_one(sql, &[id.as_str().into(), epoch.into()])?.map(read).transpose()?.ok_or(Error::Conflict)
}

/// A page of jobs, newest first, also of those that have ended.
pub fn list(tx: &mut Tx<'_>, listing: &Listing<'_>) -> Result<Vec<Job>> {
    let sql = match listing.whose {
        Whose::User { .. } => select!(
            "where user_id = $1 and removing = 0 and (created_us, id) < ($2, $3) order by created_us desc, id desc limit $4"
        ),
        Whose::Scope(_) => select!(
            "where scope = $1 and removing = 0 and (created_us, id) < ($2, $3) order by created_us desc, id desc limit $4"
        ),
    };
    tx.query(sql, &listing.params())?.into_iter().map(read).collect()
}

/// The jobs of a cluster that have not ended, in the order of their turns; those that were not started come first.
pub fn open_of_cluster(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<Vec<Job>> {
    let sql =
        select!("where cluster_id = $1 and ended_us is null and removing = 0 order by coalesce(queued_us, 0), id");
    tx.query(sql, &[cluster.as_str().into()])?.into_iter().map(read).collect()
}

/// Whether a job of a cluster has not ended.
pub fn is_any_open(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<bool> {
    let sql = "select 1 from jobs where cluster_id = $1 and ended_us is null and removing = 0 limit 1";
    Ok(tx.query_one(sql, &[cluster.as_str().into()])?.is_some())
}

/// How many jobs of a cluster have not ended.
pub fn count_open_of_cluster(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<u64> {
    let sql = "select count(*) from jobs where cluster_id = $1 and ended_us is null and removing = 0";
    tx.query_one(sql, &[cluster.as_str().into()])?.ok_or(Error::Conflict)?.count()
}

/// The line of a cluster: how many jobs have their turn, and those that wait for it, in order.
pub fn line(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<(u64, Vec<JobId>)> {
    let sql = "select id, state from jobs where cluster_id = $1 and ended_us is null and state <> 'DRAFT' \
               order by queued_us, id";
    let (mut placed, mut waiting) = (0, Vec::new());
    for mut row in tx.query(sql, &[cluster.as_str().into()])? {
        let id = row.id()?;
        match row.text()?.as_str() {
            "PENDING" => waiting.push(id),
            _ => placed += 1,
        }
    }
    Ok((placed, waiting))
}

/// How long the log of a job is and whether the job has ended; `None` when there is no such job any more.
pub fn progress(tx: &mut Tx<'_>, id: &JobId) -> Result<Option<(u64, bool)>> {
    let sql = "select log_bytes, ended_us from jobs where id = $1 and removing = 0";
    let row = tx.query_one(sql, &[id.as_str().into()])?;
    row.map(|mut row| Ok((row.count()?, row.maybe_integer()?.is_some()))).transpose()
}

/// Lets a draft wait as long as if it had just been made; `Conflict` when it is none any more.
pub fn refresh_draft(tx: &mut Tx<'_>, id: &JobId) -> Result<()> {
    let now = tx.now();
    let sql = "update jobs set since_us = $1 where id = $2 and state = 'DRAFT' and removing = 0";
    tx.execute_guarded(sql, &[now.into(), id.as_str().into()])
}

/// Jobs whose turn it is: those that wait on a running cluster with a free place. Each is to be admitted in this transaction.
pub fn admissible(tx: &mut Tx<'_>) -> Result<Vec<Job>> {
    let mut found = Vec::new();
    for (cluster, places) in free_places(tx)? {
        let sql =
            select!("where cluster_id = $1 and ended_us is null and state = 'PENDING' order by queued_us, id limit $2");
        for row in tx.query(sql, &[(&cluster).into(), places.into()])? {
            found.push(read(row)?);
        }
    }
    Ok(found)
}

/// How many run on a node, or should, and are cut off when all nodes end at once.
pub fn count_interrupted(tx: &mut Tx<'_>) -> Result<u64> {
    let sql = "select count(*) from jobs where ended_us is null and state in ('STARTING', 'RUNNING', 'STOPPING')";
    tx.query_one(sql, &[])?.ok_or(Error::Conflict)?.count()
}

/// Running clusters on which somebody waits for a place, and how many are free there.
fn free_places(tx: &mut Tx<'_>) -> Result<Vec<(String, i64)>> {
    let sql = "select c.id, c.jobs_parallel, \
               (select count(*) from jobs p where p.cluster_id = c.id and p.ended_us is null \
                and p.state in ('STARTING', 'RUNNING', 'STOPPING', 'COLLECTING')) \
               from (select distinct cluster_id from jobs where ended_us is null and state = 'PENDING') w \
               join clusters c on c.id = w.cluster_id where c.state = 'RUNNING'";
    let mut free = Vec::new();
    for mut row in tx.query(sql, &[])? {
        let (cluster, parallel, placed) = (row.text()?, row.integer()?, row.integer()?);
        if placed < parallel {
            free.push((cluster, parallel - placed));
        }
    }
    Ok(free)
}

/// Whether it is the turn of a job, or a job that has its turn is driven by nobody.
pub fn is_any_due(tx: &mut Tx<'_>) -> Result<bool> {
    let sql = "select 1 from jobs where ended_us is null and state in ('STARTING', 'RUNNING', 'STOPPING', 'COLLECTING') \
               and lease_until_us <= $1 limit 1";
    let now = tx.now();
    Ok(tx.query_one(sql, &[now.into()])?.is_some() || !free_places(tx)?.is_empty())
}

/// Leases jobs that have a place on a cluster and that nobody drives, oldest turn first.
pub fn lease_undriven(tx: &mut Tx<'_>, lease: Duration, limit: u32) -> Result<Vec<Leased>> {
    let now = tx.now();
    let sql = select!(
        "where ended_us is null and state in ('STARTING', 'RUNNING', 'STOPPING', 'COLLECTING') and lease_until_us <= $1 \
         order by queued_us, id limit $2"
    );
    let mut leased = Vec::new();
    for row in tx.query(sql, &[now.into(), limit.into()])? {
        let mut found = read_leased(row)?;
        let sql = "update jobs set epoch = epoch + 1, lease_until_us = $1 where id = $2 and epoch = $3";
        tx.execute_guarded(sql, &[now.after(lease).into(), found.job.id.as_str().into(), found.epoch.into()])?;
        found.epoch += 1;
        leased.push(found);
    }
    Ok(leased)
}

/// Prolongs a lease; `Conflict` when it was lost, or when the job waits for its turn again.
pub fn renew(tx: &mut Tx<'_>, id: &JobId, epoch: i64, lease: Duration) -> Result<()> {
    let sql =
        "update jobs set lease_until_us = $1 where id = $2 and epoch = $3 and ended_us is null and state <> 'PENDING'";
    let until = tx.now().after(lease);
    tx.execute_guarded(sql, &[until.into(), id.as_str().into(), epoch.into()])
}

/// Whether somebody else has the lease now, or had it meanwhile.
pub fn is_lost(tx: &mut Tx<'_>, id: &JobId, epoch: i64) -> Result<bool> {
    let sql = "select 1 from jobs where id = $1 and epoch <> $2";
    Ok(tx.query_one(sql, &[id.as_str().into(), epoch.into()])?.is_some())
}

/// Gives a lease back, so that the next driver need not wait for it to pass.
pub fn release(tx: &mut Tx<'_>, id: &JobId, epoch: i64) -> Result<()> {
    tx.execute("update jobs set lease_until_us = 0 where id = $1 and epoch = $2", &[id.as_str().into(), epoch.into()])?;
    Ok(())
}

/// Ends every lease. Only for a process that knows to be alone with the database: the holders are dead.
pub fn release_all(tx: &mut Tx<'_>) -> Result<u64> {
    tx.execute(
        "update jobs set lease_until_us = 0, epoch = epoch + 1 where ended_us is null and lease_until_us > 0",
        &[],
    )
}

/// Writes down the length of the log and prolongs the lease; `Conflict` when that was lost.
pub fn set_log_bytes(tx: &mut Tx<'_>, id: &JobId, epoch: i64, log_bytes: u64, lease: Duration) -> Result<()> {
    let sql = "update jobs set log_bytes = $1, lease_until_us = $2 where id = $3 and epoch = $4 and ended_us is null";
    let until = tx.now().after(lease);
    tx.execute_guarded(sql, &[log_bytes.into(), until.into(), id.as_str().into(), epoch.into()])
}

/// Drafts that have not changed since `expired`.
pub fn expired_drafts(tx: &mut Tx<'_>, expired: Time, limit: u32) -> Result<Vec<Job>> {
    let sql = select!("where ended_us is null and removing = 0 and state = 'DRAFT' and since_us <= $1 limit $2");
    tx.query(sql, &[expired.into(), limit.into()])?.into_iter().map(read).collect()
}

/// Jobs that ended before `expired` and whose cluster waits for nothing of them.
pub fn expired(tx: &mut Tx<'_>, expired: Time, limit: u32) -> Result<Vec<Job>> {
    let sql = select!("where ended_us <= $1 and removing = 0 and teardown <> 1 order by ended_us limit $2");
    tx.query(sql, &[expired.into(), limit.into()])?.into_iter().map(read).collect()
}

/// Hides a job for ever; its row stays until everything else of it is gone.
pub fn set_removing(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let sql = "update jobs set removing = 1, version = version + 1 where id = $1 and version = $2";
    tx.execute_guarded(sql, &[job.id.as_str().into(), job.version.into()])
}

/// Jobs after this one that are hidden and whose things have to be removed, in the order of their ids. One after whose end a
/// cluster is to be destroyed waits for that.
pub fn removing(tx: &mut Tx<'_>, after: Option<&JobId>, limit: u32) -> Result<Vec<Job>> {
    let sql = select!("where removing = 1 and (teardown <> 1 or ended_us is null) and id > $1 order by id limit $2");
    tx.query(sql, &[after.map_or("", JobId::as_str).into(), limit.into()])?.into_iter().map(read).collect()
}

/// Forgets a job, its nodes and what is kept of its log here.
pub fn remove(tx: &mut Tx<'_>, id: &JobId) -> Result<()> {
    for sql in [
        "delete from job_logs where job_id = $1",
        "delete from job_nodes where job_id = $1",
        "delete from jobs where id = $1",
    ] {
        tx.execute(sql, &[id.as_str().into()])?;
    }
    Ok(())
}

/// Those of these ids that have no row.
pub fn unknown(tx: &mut Tx<'_>, ids: &[JobId]) -> Result<Vec<JobId>> {
    let mut unknown = Vec::new();
    for id in ids {
        if tx.query_one("select 1 from jobs where id = $1", &[id.as_str().into()])?.is_none() {
            unknown.push(id.clone());
        }
    }
    Ok(unknown)
}

/// Jobs after which a cluster is to be destroyed and that have ended.
pub fn tearing_down(tx: &mut Tx<'_>) -> Result<Vec<Job>> {
    tx.query(select!("where teardown = 1 and ended_us is not null"), &[])?.into_iter().map(read).collect()
}

/// The job after which this cluster is to be destroyed, if there is one. A hidden one counts only if it has ended.
pub fn tears_down(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<Option<Job>> {
    let sql = select!("where cluster_id = $1 and teardown = 1 and (removing = 0 or ended_us is not null)");
    tx.query_one(sql, &[cluster.as_str().into()])?.map(read).transpose()
}

fn teardown_number(teardown: Teardown) -> i64 {
    match teardown {
        Teardown::No => 0,
        Teardown::Wanted => 1,
        Teardown::Over => 2,
    }
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Corrupt(error.to_string()))
}

fn outcome_of(job: &Job) -> Result<Option<String>> {
    job.state.outcome().map(json).transpose()
}

fn read(row: Row) -> Result<Job> {
    read_leased(row).map(|leased| leased.job)
}

fn read_leased(mut row: Row) -> Result<Leased> {
    let corrupt = |error: serde_json::Error| Error::Corrupt(error.to_string());
    let id = row.id()?;
    let owner = Owner { user: row.id()?, org: row.maybe_id()? };
    let (cluster, instance_type, name) = (row.id()?, row.text()?, row.text()?);
    let config = serde_json::from_str(&row.text()?).map_err(corrupt)?;
    let teardown = match row.integer()? {
        0 => Teardown::No,
        1 => Teardown::Wanted,
        _ => Teardown::Over,
    };
    let archive_bytes = row.maybe_integer()?.map(|bytes| bytes.unsigned_abs());
    let (state, outcome) = (row.text()?, row.maybe_text()?);
    let outcome = outcome.map(|text| serde_json::from_str(&text)).transpose().map_err(corrupt)?;
    let state = State::from_name(&state, outcome)
        .ok_or_else(|| Error::Corrupt(format!("there is no state {state} of a job")))?;
    let (since, attempt, note, log_bytes) = (row.time()?, row.count()?, row.maybe_text()?, row.count()?);
    let created = row.time()?;
    let mut time = || Ok::<_, Error>(row.maybe_integer()?.map(Time::from_micros));
    let (queued, started, ended) = (time()?, time()?, time()?);
    let version = row.integer()?;
    let job = Job {
        id,
        owner,
        cluster,
        instance_type,
        name,
        config,
        teardown,
        archive_bytes,
        state,
        since,
        attempt,
        note,
        log_bytes,
        created,
        queued,
        started,
        ended,
        version,
    };
    Ok(Leased { job, epoch: row.integer()? })
}
