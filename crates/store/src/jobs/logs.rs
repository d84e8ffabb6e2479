//! What jobs wrote, piece by piece, from the first byte on. A piece without data is an object.

use tarn_model::ids::JobId;

use crate::db::Row;
use crate::{Error, Result, Tx};

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where in the log it begins.
    pub start: u64,
    /// How many bytes it has.
    pub length: u64,
    /// The bytes; `None` where they are an object.
    pub data: Option<Vec<u8>>,
}

/// Adds a piece; `Conflict` when one begins there already, because the log has grown since it was read.
pub fn insert(tx: &mut Tx<'_>, job: &JobId, start: u64, length: u64, data: Option<&[u8]>) -> Result<()> {
    let sql = "insert into job_logs (job_id, start, length, data) values ($1, $2, $3, $4)";
    match tx.execute(sql, &[job.as_str().into(), start.into(), length.into(), data.into()]) {
        Err(Error::Taken) => Err(Error::Conflict),
        inserted => inserted.map(drop),
    }
}

/// The pieces from the one that holds the byte at `offset` on, in order. A log has no gaps.
pub fn from(tx: &mut Tx<'_>, job: &JobId, offset: u64, limit: u32) -> Result<Vec<Piece>> {
    let sql = "select start, length, data from job_logs where job_id = $1 and start >= \
               coalesce((select max(start) from job_logs where job_id = $1 and start <= $2), 0) order by start limit $3";
    let rows = tx.query(sql, &[job.as_str().into(), offset.into(), limit.into()])?;
    rows.into_iter().map(read).collect()
}

/// Where the pieces begin that have their data here, and how long they are, in order.
pub fn inline(tx: &mut Tx<'_>, job: &JobId) -> Result<Vec<(u64, u64)>> {
    let sql = "select start, length from job_logs where job_id = $1 and data is not null order by start";
    tx.query(sql, &[job.as_str().into()])?.into_iter().map(|mut row| Ok((row.count()?, row.count()?))).collect()
}

/// Puts one piece that is an object in the place of the pieces that begin within it.
pub fn merge(tx: &mut Tx<'_>, job: &JobId, start: u64, length: u64) -> Result<()> {
    let sql = "delete from job_logs where job_id = $1 and start >= $2 and start < $3";
    tx.execute(sql, &[job.as_str().into(), start.into(), (start + length).into()])?;
    insert(tx, job, start, length, None)
}

fn read(mut row: Row) -> Result<Piece> {
    Ok(Piece { start: row.count()?, length: row.count()?, data: row.maybe_bytes()? })
}
