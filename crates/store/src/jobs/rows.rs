//! Rows of jobs: adding, saving, lookups and lists.

use tarn_model::Time;
use tarn_model::ids::{ClusterId, JobId};
use tarn_model::jobs::{Job, State, Teardown};
use tarn_model::users::Owner;

use super::Leased;
use crate::db::Row;
use crate::{Error, Listing, OwnerFilter, Result, Tx};

/// Adds a job.
pub fn insert(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let sql = "insert into jobs (id, scope, user_id, org_id, cluster_id, instance_type, name, config, teardown, archive_bytes, \
               state, outcome, since_us, attempt, note, log_bytes, removing, created_us, queued_us, started_us, ended_us, \
               lease_until_us, epoch, version) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 0, 0, \
               $16, $17, $18, $19, 0, 0, $20)";
    let (config, outcome) = (to_json(&job.config)?, outcome_json(job)?);
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

/// Saves the mutable columns except the length of the log, which only the lease holder writes. `Conflict` when the row
/// was changed since it was read.
pub fn save(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let sql = "update jobs set teardown = $1, archive_bytes = $2, state = $3, outcome = $4, since_us = $5, attempt = $6, \
               note = $7, queued_us = $8, started_us = $9, ended_us = $10, version = version + 1 \
               where id = $11 and version = $12";
    let outcome = outcome_json(job)?;
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

/// Returns the job with this id, of any owner, unless it was deleted.
pub fn get(tx: &mut Tx<'_>, id: &JobId) -> Result<Option<Job>> {
    tx.query_one(select!("where id = $1 and removing = 0"), &[id.as_str().into()])?.map(read_job).transpose()
}

/// Returns a page of jobs, newest first, including ended ones.
pub fn list(tx: &mut Tx<'_>, listing: &Listing<'_>) -> Result<Vec<Job>> {
    let sql = match listing.owner {
        OwnerFilter::User { .. } => select!(
            "where user_id = $1 and removing = 0 and (created_us, id) < ($2, $3) order by created_us desc, id desc limit $4"
        ),
        OwnerFilter::Scope(_) => select!(
            "where scope = $1 and removing = 0 and (created_us, id) < ($2, $3) order by created_us desc, id desc limit $4"
        ),
    };
    tx.query(sql, &listing.params())?.into_iter().map(read_job).collect()
}

/// Returns the jobs of a cluster that have not ended, in queue order. Drafts come first.
pub fn open_of_cluster(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<Vec<Job>> {
    let sql =
        select!("where cluster_id = $1 and ended_us is null and removing = 0 order by coalesce(queued_us, 0), id");
    tx.query(sql, &[cluster.as_str().into()])?.into_iter().map(read_job).collect()
}

/// Returns whether a cluster has a job that has not ended.
pub fn is_any_open(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<bool> {
    let sql = "select 1 from jobs where cluster_id = $1 and ended_us is null and removing = 0 limit 1";
    Ok(tx.query_one(sql, &[cluster.as_str().into()])?.is_some())
}

/// Returns the number of jobs of a cluster that have not ended.
pub fn count_open_of_cluster(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<u64> {
    let sql = "select count(*) from jobs where cluster_id = $1 and ended_us is null and removing = 0";
    tx.query_one(sql, &[cluster.as_str().into()])?.ok_or(Error::Conflict)?.count()
}

/// Returns the length of a job's log and whether the job has ended; `None` when there is no such job.
pub fn progress(tx: &mut Tx<'_>, id: &JobId) -> Result<Option<(u64, bool)>> {
    let sql = "select log_bytes, ended_us from jobs where id = $1 and removing = 0";
    let row = tx.query_one(sql, &[id.as_str().into()])?;
    row.map(|mut row| Ok((row.count()?, row.maybe_integer()?.is_some()))).transpose()
}

/// Restarts the expiry of a draft. `Conflict` when the job is no draft any more.
pub fn refresh_draft(tx: &mut Tx<'_>, id: &JobId) -> Result<()> {
    let now = tx.now();
    let sql = "update jobs set since_us = $1 where id = $2 and state = 'DRAFT' and removing = 0";
    tx.execute_guarded(sql, &[now.into(), id.as_str().into()])
}

fn teardown_number(teardown: Teardown) -> i64 {
    match teardown {
        Teardown::No => 0,
        Teardown::Wanted => 1,
        Teardown::Over => 2,
    }
}

fn to_json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Corrupt(error.to_string()))
}

fn outcome_json(job: &Job) -> Result<Option<String>> {
    job.state.outcome().map(to_json).transpose()
}

pub(super) fn read_job(row: Row) -> Result<Job> {
    read_leased_job(row).map(|leased| leased.job)
}

pub(super) fn read_leased_job(mut row: Row) -> Result<Leased> {
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
