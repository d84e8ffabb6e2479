//! Rows of jobs: adding, saving, lookups and lists.

use tarn_model::ids::{ClusterId, JobId};
use tarn_model::jobs::{Job, State, Teardown};
use tarn_model::users::Owner;

use super::Leased;
use crate::db::{Row, params};
use crate::{Error, Listing, OwnerFilter, Result, Tx};

/// Adds a job.
pub fn insert(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let sql = "insert into jobs (id, scope, user_id, org_id, cluster_id, instance_type, name, archive_bytes, state, since_us, attempt, \
               note, created_us, queued_us, started_us, ended_us, version, config, teardown, outcome, log_bytes, removing, \
               lease_until_us, epoch) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
               $18, $19, $20, 0, 0, 0, 0)";
    let (config, outcome) = (to_json(&job.config)?, outcome_json(job)?);
    tx.run(
        sql,
        &params!(job: id, owner.scope(), owner.user, owner.org, cluster, instance_type, name, archive_bytes,
            state.name(), since, attempt, note, created, queued, started, ended, version; config,
            teardown_number(job.teardown), outcome),
    )
}

/// Saves the mutable columns except the length of the log, which only the lease holder writes. `Conflict` when the row
/// was changed since it was read.
pub fn save(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let sql = "update jobs set archive_bytes = $1, state = $2, since_us = $3, attempt = $4, note = $5, queued_us = $6, \
               started_us = $7, ended_us = $8, teardown = $11, outcome = $12, version = version + 1 \
               where id = $9 and version = $10";
    let outcome = outcome_json(job)?;
    tx.execute_guarded(
        sql,
        &params!(job: archive_bytes, state.name(), since, attempt, note, queued, started, ended, id, version;
            teardown_number(job.teardown), outcome),
    )
}

/// Returns the job with this id, of any owner, unless it was deleted.
pub fn get(tx: &mut Tx<'_>, id: &JobId) -> Result<Option<Job>> {
    tx.row(select!("where id = $1 and removing = 0"), &params![id], read_job)
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
    tx.rows(sql, &listing.params(), read_job)
}

/// Returns the jobs of a cluster that have not ended, in queue order. Drafts come first.
pub fn open_of_cluster(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<Vec<Job>> {
    let sql =
        select!("where cluster_id = $1 and ended_us is null and removing = 0 order by coalesce(queued_us, 0), id");
    tx.rows(sql, &params![cluster], read_job)
}

/// Returns all jobs that have not ended, also hidden ones.
pub fn open(tx: &mut Tx<'_>) -> Result<Vec<Job>> {
    tx.rows(select!("where ended_us is null order by created_us, id"), &[], read_job)
}

/// Returns whether a cluster has a job that has not ended.
pub fn is_any_open(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<bool> {
    let sql = "select 1 from jobs where cluster_id = $1 and ended_us is null and removing = 0 limit 1";
    tx.has_row(sql, &params![cluster])
}

/// Returns the number of jobs of a cluster that have not ended.
pub fn count_open_of_cluster(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<u64> {
    let sql = "select count(*) from jobs where cluster_id = $1 and ended_us is null and removing = 0";
    tx.single(sql, &params![cluster], |row| row.count())
}

/// Returns the length of a job's log and whether the job has ended; `None` when there is no such job.
pub fn progress(tx: &mut Tx<'_>, id: &JobId) -> Result<Option<(u64, bool)>> {
    let sql = "select log_bytes, ended_us from jobs where id = $1 and removing = 0";
    tx.row(sql, &params![id], |row| Ok((row.count()?, row.maybe_integer()?.is_some())))
}

/// Restarts the expiry of a draft. `Conflict` when the job is no draft any more.
pub fn refresh_draft(tx: &mut Tx<'_>, id: &JobId) -> Result<()> {
    let now = tx.now();
    let sql = "update jobs set since_us = $1 where id = $2 and state = 'DRAFT' and removing = 0";
    tx.execute_guarded(sql, &params![now, id])
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

pub(super) fn read_job(row: &mut Row) -> Result<Job> {
    read_leased_job(row).map(|leased| leased.job)
}

pub(super) fn read_leased_job(row: &mut Row) -> Result<Leased> {
    let corrupt = |error: serde_json::Error| Error::Corrupt(error.to_string());
    let job = Job {
        id: row.id()?,
        owner: Owner { user: row.id()?, org: row.maybe_id()? },
        cluster: row.id()?,
        instance_type: row.text()?,
        name: row.text()?,
        config: serde_json::from_str(&row.text()?).map_err(corrupt)?,
        teardown: match row.integer()? {
            0 => Teardown::No,
            1 => Teardown::Wanted,
            _ => Teardown::Over,
        },
        archive_bytes: row.maybe_integer()?.map(i64::unsigned_abs),
        state: {
            let (name, outcome) = (row.text()?, row.maybe_text()?);
            let outcome = outcome.map(|text| serde_json::from_str(&text)).transpose().map_err(corrupt)?;
            State::from_name(&name, outcome)
                .ok_or_else(|| Error::Corrupt(format!("there is no state {name} of a job")))?
        },
        since: row.time()?,
        attempt: row.count()?,
        note: row.maybe_text()?,
        log_bytes: row.count()?,
        created: row.time()?,
        queued: row.maybe_time()?,
        started: row.maybe_time()?,
        ended: row.maybe_time()?,
        version: row.integer()?,
    };
    Ok(Leased { job, epoch: row.integer()? })
}
