//! The end of jobs: expired drafts and jobs, hidden jobs that are being removed, and clusters destroyed after a job.

use tarn_model::Time;
use tarn_model::ids::{ClusterId, JobId};
use tarn_model::jobs::Job;

use super::rows::read_job;
use crate::db::params;
use crate::{Result, Tx, usage};

/// Returns drafts that have not changed since `expired`.
pub fn expired_drafts(tx: &mut Tx<'_>, expired: Time, limit: u32) -> Result<Vec<Job>> {
    let sql = select!("where ended_us is null and removing = 0 and state = 'DRAFT' and since_us <= $1 limit $2");
    tx.rows(sql, &params![expired, limit], read_job)
}

/// Returns jobs that ended before `expired` and whose cluster is not waiting to be destroyed after them.
pub fn expired(tx: &mut Tx<'_>, expired: Time, limit: u32) -> Result<Vec<Job>> {
    let sql = select!("where ended_us <= $1 and removing = 0 and teardown <> 1 order by ended_us limit $2");
    tx.rows(sql, &params![expired, limit], read_job)
}

/// Hides a job permanently. Its row stays until everything else of the job is removed.
pub fn set_removing(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let sql = "update jobs set removing = 1, version = version + 1 where id = $1 and version = $2";
    tx.execute_guarded(sql, &params![job.id, job.version])
}

/// Returns hidden jobs after this id that have to be removed, ordered by id. A job after which a cluster is destroyed
/// is left out until that has happened.
pub fn removing(tx: &mut Tx<'_>, after: Option<&JobId>, limit: u32) -> Result<Vec<Job>> {
    let sql = select!("where removing = 1 and (teardown <> 1 or ended_us is null) and id > $1 order by id limit $2");
    tx.rows(sql, &params![after.map_or("", JobId::as_str), limit], read_job)
}

/// Removes a job, its nodes and the part of its log that is in the database.
pub fn remove(tx: &mut Tx<'_>, id: &JobId) -> Result<()> {
    usage::release_job(tx, id)?;
    for sql in [
        "delete from job_logs where job_id = $1",
        "delete from job_nodes where job_id = $1",
        "delete from jobs where id = $1",
    ] {
        tx.execute(sql, &params![id])?;
    }
    Ok(())
}

/// Returns those of the ids that have no row.
pub fn unknown(tx: &mut Tx<'_>, ids: &[JobId]) -> Result<Vec<JobId>> {
    let mut unknown = Vec::new();
    for id in ids {
        if !tx.has_row("select 1 from jobs where id = $1", &params![id])? {
            unknown.push(id.clone());
        }
    }
    Ok(unknown)
}

/// Returns a page of the ended jobs after which a cluster is to be destroyed, ordered by id.
pub fn tearing_down(tx: &mut Tx<'_>, after: Option<&JobId>, limit: u32) -> Result<Vec<Job>> {
    let sql = select!("where teardown = 1 and ended_us is not null and id > $1 order by id limit $2");
    tx.rows(sql, &params![after.map_or("", JobId::as_str), limit], read_job)
}

/// Returns the job after which this cluster is to be destroyed, if there is one. A hidden job counts only if it has
/// ended.
pub fn tears_down(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<Option<Job>> {
    let sql = select!("where cluster_id = $1 and teardown = 1 and (removing = 0 or ended_us is not null)");
    tx.row(sql, &params![cluster], read_job)
}
