//! The nodes of a job, and how much of the output of each node is saved.

use tarn_model::ids::{InstanceId, JobId};
use tarn_model::jobs::JobNode;

use crate::db::{Row, params};
use crate::{Result, Tx};

/// Replaces the nodes of the previous attempt by those of a new attempt.
pub fn replace(tx: &mut Tx<'_>, job: &JobId, nodes: &[JobNode]) -> Result<()> {
    tx.execute("delete from job_nodes where job_id = $1", &params![job])?;
    let sql =
        "insert into job_nodes (node, instance_id, boot, log_offset, ended, job_id) values ($1, $2, $3, $4, $5, $6)";
    for node in nodes {
        tx.execute(sql, &params!(node: node, instance, boot, log_offset, ended; job))?;
    }
    Ok(())
}

/// Saves how much of a node's output is saved, and whether the attempt has ended there.
pub fn advance(tx: &mut Tx<'_>, node: &JobNode) -> Result<()> {
    let sql = "update job_nodes set log_offset = $1, ended = $2 where job_id = $3 and node = $4";
    tx.execute_guarded(sql, &params!(node: log_offset, ended, job, node))
}

/// Returns the nodes of a job, in order.
pub fn of_job(tx: &mut Tx<'_>, job: &JobId) -> Result<Vec<JobNode>> {
    let sql =
        "select job_id, node, instance_id, boot, log_offset, ended from job_nodes where job_id = $1 order by node";
    tx.rows(sql, &params![job], read_job_node)
}

/// Returns the nodes of all jobs that ever ran on an instance.
pub fn of_instance(tx: &mut Tx<'_>, instance: &InstanceId) -> Result<Vec<JobNode>> {
    let sql = "select job_id, node, instance_id, boot, log_offset, ended from job_nodes where instance_id = $1";
    tx.rows(sql, &params![instance], read_job_node)
}

fn read_job_node(row: &mut Row) -> Result<JobNode> {
    Ok(JobNode {
        job: row.id()?,
        node: row.count()?,
        instance: row.id()?,
        boot: row.count()?,
        log_offset: row.count()?,
        ended: row.flag()?,
    })
}
