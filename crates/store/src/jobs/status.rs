//! The status of many jobs at a time, for cleaning up what they left on nodes.

use tarn_model::Time;
use tarn_model::ids::JobId;

use crate::db::Param;
use crate::{Result, Tx};

/// The facts that decide what a node may remove of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    pub id: JobId,
    /// The number of the current attempt.
    pub attempt: u32,
    /// Whether the job occupies a slot of its cluster.
    pub is_placed: bool,
    pub ended: Option<Time>,
    /// Whether the job was deleted. Its removal is under way.
    pub is_hidden: bool,
}

/// Returns the status of those of the jobs that have a row.
pub fn of_jobs(tx: &mut Tx<'_>, ids: &[JobId]) -> Result<Vec<JobStatus>> {
    let sql = "select id, attempt, state, ended_us, removing from jobs where id in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
               $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32)";
    let mut found = Vec::with_capacity(ids.len());
    for some in ids.chunks(32) {
        // One SQL text serves every batch: unused parameters repeat the first id.
        let asked: Vec<_> = (0..32).map(|at| Param::Text(some.get(at).unwrap_or(&some[0]).as_str())).collect();
        for mut row in tx.query(sql, &asked)? {
            let (id, attempt, state) = (row.id()?, row.count()?, row.text()?);
            let is_placed = !matches!(state.as_str(), "DRAFT" | "PENDING" | "ENDED");
            let ended = row.maybe_time()?;
            found.push(JobStatus { id, attempt, is_placed, ended, is_hidden: row.flag()? });
        }
    }
    Ok(found)
}
