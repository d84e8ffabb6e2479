//! Limits of organizations and of users without one, and the usage that counts against them.

use tarn_model::limits::{Amounts, Limits};

use super::counts::{self, Counts};
use crate::db::{Row, params};
use crate::{Error, Result, Tx};

/// Returns the limits of a scope; without a row it has none.
pub fn get(tx: &mut Tx<'_>, scope: &str) -> Result<Limits> {
    let sql =
        "select instances, cpu_milli, gpus, volume_gb, object_bytes, waiting, job_bytes from limits where scope = $1";
    Ok(tx.row(sql, &params![scope], read_limits)?.unwrap_or_default())
}

/// Returns how many bytes of objects an organization may store, if it has a limit.
pub fn object_bytes(tx: &mut Tx<'_>, scope: &str) -> Result<Option<u64>> {
    Ok(get(tx, scope)?.object_bytes)
}

/// Returns how many bytes may be kept for the jobs of a scope, if it has a limit of its own.
pub fn job_bytes(tx: &mut Tx<'_>, scope: &str) -> Result<Option<u64>> {
    Ok(get(tx, scope)?.job_bytes)
}

/// Sets all limits of a scope. Without any limit the row is removed.
pub fn set(tx: &mut Tx<'_>, scope: &str, limits: &Limits) -> Result<()> {
    tx.execute("delete from limits where scope = $1", &params![scope])?;
    if limits.is_empty() {
        return Ok(());
    }
    let now = tx.now();
    let sql = "insert into limits (instances, cpu_milli, gpus, volume_gb, object_bytes, waiting, job_bytes, scope, \
               changed_us) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    tx.run(sql, &params!(limits: instances, cpu_milli, gpus, volume_gb, object_bytes, waiting, job_bytes; scope, now))
}

/// Returns the scopes that have limits, ordered by id, after this one.
pub fn list(tx: &mut Tx<'_>, after: &str, limit: u32) -> Result<Vec<String>> {
    let sql = "select scope from limits where scope > $1 order by scope limit $2";
    tx.rows(sql, &params![after, limit], |row| row.text())
}

/// Returns the current usage of a scope. A cluster that waits for capacity counts with all of its nodes, and a failed
/// one with what it still holds. A volume that is being resized counts with its new size.
pub fn used(tx: &mut Tx<'_>, scope: &str) -> Result<Amounts> {
    let Counts { instances, cpu_milli, gpus, promised_gb: volume_gb, waiting, .. } = counts::get(tx, scope)?;
    let sql = "select bytes from accounts where org_id = $1";
    let object_bytes = tx.row(sql, &params![scope], |row| row.count())?.unwrap_or(0);
    let job_bytes = super::usage::job_bytes(tx, scope)?;
    Ok(Amounts { instances, cpu_milli, gpus, volume_gb, object_bytes, waiting, job_bytes })
}

fn read_limits(row: &mut Row) -> Result<Limits> {
    let mut amount = || -> Result<Option<u64>> {
        let value = row.maybe_integer()?;
        value.map(u64::try_from).transpose().map_err(|error| Error::Corrupt(error.to_string()))
    };
    Ok(Limits {
        instances: amount()?,
        cpu_milli: amount()?,
        gpus: amount()?,
        volume_gb: amount()?,
        object_bytes: amount()?,
        waiting: amount()?,
        job_bytes: amount()?,
    })
}
