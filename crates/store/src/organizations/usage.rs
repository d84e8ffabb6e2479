//! Counters of what an organization, or a user without one, makes the engine keep. Each is changed in the transaction
//! that adds or removes what it counts, so that nothing has to be counted again, not even after a crash.

use std::collections::BTreeMap;

use tarn_model::ids::JobId;

use crate::db::params;
use crate::{Result, Tx};

/// Adds to the bytes that are kept for a job, and to those of its owner. A job without a row counts nothing: what it
/// left is removed by a reconciler.
pub fn add_job_bytes(tx: &mut Tx<'_>, job: &str, bytes: i64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let sql = "update jobs set stored_bytes = stored_bytes + $1 where id = $2 returning scope";
    let scope = tx.row(sql, &params![bytes, job], |row| row.text())?;
    scope.map_or(Ok(()), |scope| add(tx, &scope, [bytes, 0, 0]))
}

/// Subtracts what is still kept for a job whose row is being removed.
pub(crate) fn release_job(tx: &mut Tx<'_>, job: &JobId) -> Result<()> {
    let sql = "select scope, stored_bytes from jobs where id = $1";
    match tx.row(sql, &params![job], |row| Ok((row.text()?, row.integer()?)))? {
        Some((scope, bytes)) if bytes != 0 => add(tx, &scope, [-bytes, 0, 0]),
        Some(_) | None => Ok(()),
    }
}

/// Returns the owner of a job, and the bytes that are kept for all jobs of this owner.
pub fn of_job(tx: &mut Tx<'_>, job: &JobId) -> Result<Option<(String, u64)>> {
    let sql = "select j.scope, coalesce(u.job_bytes, 0) from jobs j left join usage_counters u on u.scope = j.scope \
               where j.id = $1";
    tx.row(sql, &params![job], |row| Ok((row.text()?, row.count()?)))
}

/// Returns the bytes that are kept for the jobs of a scope.
pub fn job_bytes(tx: &mut Tx<'_>, scope: &str) -> Result<u64> {
    let sql = "select job_bytes from usage_counters where scope = $1";
    Ok(tx.row(sql, &params![scope], |row| row.count())?.unwrap_or(0))
}

/// Adds to the number of requests that are kept for a scope, and returns it.
pub(crate) fn add_requests(tx: &mut Tx<'_>, scope: &str, count: i64) -> Result<u64> {
    let sql = "insert into usage_counters (scope, job_bytes, requests, outcomes) values ($1, 0, $2, 0) \
               on conflict (scope) do update set requests = usage_counters.requests + excluded.requests \
               returning requests";
    tx.single(sql, &params![scope, count], |row| row.count())
}

/// Adds to the number of outcomes of idempotent calls that are kept for a scope.
pub(crate) fn add_outcomes(tx: &mut Tx<'_>, scope: &str, count: i64) -> Result<()> {
    add(tx, scope, [0, 0, count])
}

/// Returns the number of outcomes of idempotent calls that are kept for a scope.
pub fn outcomes(tx: &mut Tx<'_>, scope: &str) -> Result<u64> {
    let sql = "select outcomes from usage_counters where scope = $1";
    Ok(tx.row(sql, &params![scope], |row| row.count())?.unwrap_or(0))
}

/// Returns the counters of a scope, counted from the rows: job bytes, requests and outcomes. For tests, which compare
/// them.
#[cfg(feature = "testing")]
pub fn recount(tx: &mut Tx<'_>, scope: &str) -> Result<[u64; 3]> {
    let sql = "select \
               (select cast(coalesce(sum(o.size), 0) as bigint) from objects o join buckets b on b.id = o.bucket_id \
                join jobs j on j.id = substr(o.key, 1, 14) \
                where b.org_id = 'o-000000000000' and b.name = 'jobs' and j.scope = $1), \
               (select cast(coalesce(sum(l.length), 0) as bigint) from job_logs l join jobs j on j.id = l.job_id \
                where j.scope = $1 and l.data is not null), \
               (select count(*) from requests where scope = $1), \
               (select count(*) from idempotency where scope = $1)";
    tx.single(sql, &params![scope], |row| {
        let (objects, rows): (u64, u64) = (row.count()?, row.count()?);
        Ok([objects + rows, row.count()?, row.count()?])
    })
}

/// Returns the counters of a scope: job bytes, requests and outcomes.
#[cfg(feature = "testing")]
pub fn counters(tx: &mut Tx<'_>, scope: &str) -> Result<[u64; 3]> {
    let sql = "select job_bytes, requests, outcomes from usage_counters where scope = $1";
    let found = tx.row(sql, &params![scope], |row| Ok([row.count()?, row.count()?, row.count()?]))?;
    Ok(found.unwrap_or_default())
}

/// Subtracts removed rows from the counters of their scopes, of which there is one entry for each row. Returns the
/// number of rows.
pub(crate) fn subtract_each(tx: &mut Tx<'_>, scopes: &[String], change: impl Fn(i64) -> [i64; 3]) -> Result<u64> {
    let mut counts = BTreeMap::<&str, i64>::new();
    for scope in scopes {
        *counts.entry(scope).or_default() += 1;
    }
    for (scope, count) in counts {
        add(tx, scope, change(-count))?;
    }
    Ok(scopes.len() as u64)
}

fn add(tx: &mut Tx<'_>, scope: &str, [job_bytes, requests, outcomes]: [i64; 3]) -> Result<()> {
    let sql = "insert into usage_counters (scope, job_bytes, requests, outcomes) values ($1, $2, $3, $4) \
               on conflict (scope) do update set job_bytes = usage_counters.job_bytes + excluded.job_bytes, \
               requests = usage_counters.requests + excluded.requests, \
               outcomes = usage_counters.outcomes + excluded.outcomes";
    tx.run(sql, &params![scope, job_bytes, requests, outcomes])
}
