//! How jobs are, many at a time: for those who look after what is left of them on nodes.

use tarn_model::Time;
use tarn_model::ids::JobId;

use crate::{Result, Tx};

/// How a job is, as far as those need to know who look after what is left of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// The job.
    pub id: JobId,
    /// Which attempt it has come to.
    pub attempt: u32,
    /// Whether it takes a place on its cluster.
    pub is_placed: bool,
    /// When it ended.
    pub ended: Option<Time>,
    /// Whether it was deleted, and whoever deletes it is at it.
    pub is_hidden: bool,
}

/// How jobs are, of those of these ids that have a row.
pub fn of_jobs(tx: &mut Tx<'_>, ids: &[JobId]) -> Result<Vec<JobStatus>> {
    let sql = "select id, attempt, state, ended_us, removing from jobs where id in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
               $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32)";
    let mut found = Vec::with_capacity(ids.len());
    for some in ids.chunks(32) {
        // One text serves any number: what is left over of it asks for the first one again.
        let asked: Vec<_> = (0..32).map(|at| some.get(at).unwrap_or(&some[0]).as_str().into()).collect();
        for mut row in tx.query(sql, &asked)? {
            let (id, attempt, state) = (row.id()?, row.count()?, row.text()?);
            let is_placed = !matches!(state.as_str(), "DRAFT" | "PENDING" | "ENDED");
            let ended = row.maybe_integer()?.map(Time::from_micros);
            found.push(JobStatus { id, attempt, is_placed, ended, is_hidden: row.flag()? });
        }
    }
    Ok(found)
}
