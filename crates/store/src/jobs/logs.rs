//! Logs of jobs as consecutive pieces, starting at the first byte. A piece without data is stored as an object.

use tarn_model::ids::JobId;

use crate::db::{Row, params};
use crate::{Error, Result, Tx, usage};

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset of the piece in the log.
    pub start: u64,
    pub length: u64,
    /// The bytes; `None` when they are stored as an object.
    pub data: Option<Vec<u8>>,
}

/// Adds a piece. `Conflict` when a piece starts there already, because the log has grown since it was read.
pub fn insert(tx: &mut Tx<'_>, job: &JobId, start: u64, length: u64, data: Option<&[u8]>) -> Result<()> {
    let sql = "insert into job_logs (job_id, start, length, data) values ($1, $2, $3, $4)";
    match tx.execute(sql, &params![job, start, length, data]) {
        Err(Error::Taken) => Err(Error::Conflict),
        inserted => inserted.map(drop),
    }?;
    // The bytes of an object are counted with the object.
    if data.is_some() { usage::add_job_bytes(tx, job.as_str(), length as i64) } else { Ok(()) }
}

/// Returns the pieces in order, starting with the one that holds the byte at `offset`. A log has no gaps.
pub fn from(tx: &mut Tx<'_>, job: &JobId, offset: u64, limit: u32) -> Result<Vec<Piece>> {
    let sql = "select start, length, data from job_logs where job_id = $1 and start >= \
               coalesce((select max(start) from job_logs where job_id = $1 and start <= $2), 0) order by start limit $3";
    tx.rows(sql, &params![job, offset, limit], read_piece)
}

/// Returns the offset and length of the pieces whose data is in the database, in order.
pub fn inline(tx: &mut Tx<'_>, job: &JobId) -> Result<Vec<(u64, u64)>> {
    let sql = "select start, length from job_logs where job_id = $1 and data is not null order by start";
    tx.rows(sql, &params![job], |row| Ok((row.count()?, row.count()?)))
}

/// Replaces the pieces that start within a range by one piece that is stored as an object.
pub fn merge(tx: &mut Tx<'_>, job: &JobId, start: u64, length: u64) -> Result<()> {
    let end = start + length;
    let sql = "select cast(coalesce(sum(length), 0) as bigint) from job_logs \
               where job_id = $1 and start >= $2 and start < $3 and data is not null";
    let in_rows = tx.single(sql, &params![job, start, end], |row| row.integer())?;
    usage::add_job_bytes(tx, job.as_str(), -in_rows)?;
    let sql = "delete from job_logs where job_id = $1 and start >= $2 and start < $3";
    tx.execute(sql, &params![job, start, end])?;
    insert(tx, job, start, length, None)
}

fn read_piece(row: &mut Row) -> Result<Piece> {
    Ok(Piece { start: row.count()?, length: row.count()?, data: row.maybe_bytes()? })
}
