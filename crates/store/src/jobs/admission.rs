//! The queue of jobs on each cluster: which jobs wait, and which of them may start.

use tarn_model::ids::{ClusterId, JobId};
use tarn_model::jobs::Job;

use super::rows::read_job;
use crate::db::params;
use crate::{Result, Tx};

/// Returns the queue of a cluster: the number of admitted jobs, and the waiting jobs in order.
pub fn line(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<(u64, Vec<JobId>)> {
    let sql = "select id, state from jobs where cluster_id = $1 and ended_us is null and state <> 'DRAFT' \
               order by queued_us, id";
    let (mut placed, mut waiting) = (0, Vec::new());
    for mut row in tx.query(sql, &params![cluster])? {
        let id = row.id()?;
        match row.text()?.as_str() {
            "PENDING" => waiting.push(id),
            _ => placed += 1,
        }
    }
    Ok((placed, waiting))
}

/// Returns the jobs that may start: the first waiting jobs of running clusters with free slots. The caller admits each
/// of them in this transaction.
pub fn admissible(tx: &mut Tx<'_>) -> Result<Vec<Job>> {
    let mut found = Vec::new();
    for (cluster, slots) in clusters_with_free_slots(tx)? {
        let sql =
            select!("where cluster_id = $1 and ended_us is null and state = 'PENDING' order by queued_us, id limit $2");
        found.extend(tx.rows(sql, &params![cluster, slots], read_job)?);
    }
    Ok(found)
}

/// Returns the number of jobs that are interrupted when all nodes stop at once: those that run on a node or are about
/// to.
pub fn count_interrupted(tx: &mut Tx<'_>) -> Result<u64> {
    let sql = "select count(*) from jobs where ended_us is null and state in ('STARTING', 'RUNNING', 'STOPPING')";
    tx.single(sql, &[], |row| row.count())
}

/// Returns the running clusters that have waiting jobs and free slots, with the number of free slots.
///
/// Many jobs may wait for clusters that do not run, and many clusters may run without jobs. So the query steps through
/// both in order of the cluster: from one with a waiting job to the next that holds capacity, which it looks at, and
/// back. It takes as many steps as the fewer of both have.
fn clusters_with_free_slots(tx: &mut Tx<'_>) -> Result<Vec<(String, i64)>> {
    let sql = "with recursive steps(cluster_id) as (\
               select (select i.cluster_id from instances i where i.holds_capacity = 1 and i.cluster_id >= \
               (select j.cluster_id from jobs j where j.ended_us is null and j.state = 'PENDING' \
               order by j.cluster_id limit 1) order by i.cluster_id limit 1) \
               union all \
               select (select i.cluster_id from instances i where i.holds_capacity = 1 and i.cluster_id >= \
               (select j.cluster_id from jobs j where j.ended_us is null and j.state = 'PENDING' \
               and j.cluster_id > steps.cluster_id order by j.cluster_id limit 1) order by i.cluster_id limit 1) \
               from steps where steps.cluster_id is not null) \
               select c.id, c.jobs_parallel, \
               (select count(*) from jobs p where p.cluster_id = c.id and p.ended_us is null \
                and p.state in ('STARTING', 'RUNNING', 'STOPPING', 'COLLECTING')) \
               from steps cross join clusters c where c.id = steps.cluster_id and c.state = 'RUNNING' \
               and exists (select 1 from jobs w where w.cluster_id = c.id and w.ended_us is null and w.state = 'PENDING')";
    let mut free = Vec::new();
    for mut row in tx.query(sql, &[])? {
        let (cluster, parallel, placed) = (row.text()?, row.integer()?, row.integer()?);
        if placed < parallel {
            free.push((cluster, parallel - placed));
        }
    }
    Ok(free)
}

/// Returns whether a job can be admitted, or an admitted job has no engine that runs it.
pub fn is_any_due(tx: &mut Tx<'_>) -> Result<bool> {
    let sql = "select 1 from jobs where ended_us is null and state in ('STARTING', 'RUNNING', 'STOPPING', 'COLLECTING') \
               and lease_until_us <= $1 limit 1";
    let now = tx.now();
    Ok(tx.has_row(sql, &params![now])? || !clusters_with_free_slots(tx)?.is_empty())
}
