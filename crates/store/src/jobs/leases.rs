//! Leases of jobs.
//!
//! A lease raises the job's epoch, and everything its holder writes is guarded by that number: an engine that lost its
//! lease can write nothing.

use std::time::Duration;

use tarn_model::ids::JobId;
use tarn_model::jobs::Job;

use super::rows::{read_job, read_leased_job};
use crate::db::params;
use crate::{Error, Result, Tx};

/// A job and the lease that allows an engine to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    pub job: Job,
    /// The number of the lease.
    pub epoch: i64,
}

/// Returns the job leased with this epoch. `Conflict` when the lease was lost.
pub fn leased(tx: &mut Tx<'_>, id: &JobId, epoch: i64) -> Result<Job> {
    let sql = select!("where id = $1 and epoch = $2 and ended_us is null");
    tx.row(sql, &params![id, epoch], read_job)?.ok_or(Error::Conflict)
}

/// Leases jobs that are admitted to their cluster and that no engine runs, oldest first.
pub fn lease_available(tx: &mut Tx<'_>, lease: Duration, limit: u32) -> Result<Vec<Leased>> {
    let now = tx.now();
    let sql = select!(
        "where ended_us is null and state in ('STARTING', 'RUNNING', 'STOPPING', 'COLLECTING') and lease_until_us <= $1 \
         order by queued_us, id limit $2"
    );
    let mut leased = tx.rows(sql, &params![now, limit], read_leased_job)?;
    for found in &mut leased {
        let sql = "update jobs set epoch = epoch + 1, lease_until_us = $1 where id = $2 and epoch = $3";
        tx.execute_guarded(sql, &params![now.after(lease), found.job.id, found.epoch])?;
        found.epoch += 1;
    }
    Ok(leased)
}

/// Extends a lease. `Conflict` when it was lost or when the job waits in the queue again.
pub fn renew(tx: &mut Tx<'_>, id: &JobId, epoch: i64, lease: Duration) -> Result<()> {
    let sql =
        "update jobs set lease_until_us = $1 where id = $2 and epoch = $3 and ended_us is null and state <> 'PENDING'";
    let until = tx.now().after(lease);
    tx.execute_guarded(sql, &params![until, id, epoch])
}

/// Returns whether another holder has or had the lease since this epoch.
pub fn is_lost(tx: &mut Tx<'_>, id: &JobId, epoch: i64) -> Result<bool> {
    let sql = "select 1 from jobs where id = $1 and epoch <> $2";
    tx.has_row(sql, &params![id, epoch])
}

/// Releases a lease, so that the next holder need not wait for it to expire.
pub fn release(tx: &mut Tx<'_>, id: &JobId, epoch: i64) -> Result<()> {
    tx.run("update jobs set lease_until_us = 0 where id = $1 and epoch = $2", &params![id, epoch])
}

/// Ends every lease. Only for a process that is alone with the database: all former holders have stopped.
pub fn release_all(tx: &mut Tx<'_>) -> Result<u64> {
    tx.execute(
        "update jobs set lease_until_us = 0, epoch = epoch + 1 where ended_us is null and lease_until_us > 0",
        &[],
    )
}

/// Saves the length of the log and extends the lease. `Conflict` when the lease was lost.
pub fn set_log_bytes(tx: &mut Tx<'_>, id: &JobId, epoch: i64, log_bytes: u64, lease: Duration) -> Result<()> {
    let sql = "update jobs set log_bytes = $1, lease_until_us = $2 where id = $3 and epoch = $4 and ended_us is null";
    let until = tx.now().after(lease);
    tx.execute_guarded(sql, &params![log_bytes, until, id, epoch])
}
