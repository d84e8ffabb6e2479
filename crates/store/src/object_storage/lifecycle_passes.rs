//! How far the rules for the life of objects were applied. Each bucket with such rules has a row.

use tarn_model::Time;
use tarn_model::ids::{BucketId, OrgId};

use crate::db::params;
use crate::{Result, Tx};

/// Starts a pass over a bucket, or starts it again, at this time. Its position is the time: no earlier pass has it, so
/// a page of an earlier pass is not taken for one of this.
pub fn start(tx: &mut Tx<'_>, bucket: &BucketId, org: &OrgId, due: Time) -> Result<()> {
    remove(tx, bucket)?;
    let sql = "insert into lifecycle_passes (bucket_id, org_id, due_us, position) values ($1, $2, $3, $4)";
    tx.run(sql, &params![bucket, org, due, due.as_micros().to_string()])
}

/// Saves where a pass continues, and when. A pass that was removed is not started again.
pub fn advance(tx: &mut Tx<'_>, bucket: &BucketId, due: Time, position: &str) -> Result<()> {
    let sql = "update lifecycle_passes set due_us = $1, position = $2 where bucket_id = $3";
    tx.execute(sql, &params![due, position, bucket]).map(drop)
}

/// Ends the pass over a bucket that has no rules any more.
pub fn remove(tx: &mut Tx<'_>, bucket: &BucketId) -> Result<()> {
    tx.execute("delete from lifecycle_passes where bucket_id = $1", &params![bucket]).map(drop)
}

/// Returns the position of the pass over a bucket.
pub fn position(tx: &mut Tx<'_>, bucket: &BucketId) -> Result<Option<String>> {
    tx.row("select position from lifecycle_passes where bucket_id = $1", &params![bucket], |row| row.text())
}

/// Returns the first organization after this one, by id, that has a pass to continue. While there is any, it reads one
/// row of each organization that has none: however many buckets others have, they do not make this slower.
pub fn next_organization(tx: &mut Tx<'_>, now: Time, after: &str) -> Result<Option<OrgId>> {
    if !tx.has_row("select 1 from lifecycle_passes where due_us <= $1 limit 1", &params![now])? {
        return Ok(None);
    }
    let sql = "with recursive others (org_id) as ( \
                 select min(org_id) from lifecycle_passes where org_id > $1 \
                 union all \
                 select (select min(p.org_id) from lifecycle_passes p where p.org_id > others.org_id) \
                 from others where others.org_id is not null) \
               select org_id from others \
               where exists (select 1 from lifecycle_passes p where p.org_id = others.org_id and p.due_us <= $2) limit 1";
    tx.row(sql, &params![after, now], |row| row.id())
}

/// Returns the bucket of an organization whose pass has waited longest.
pub fn longest_due(tx: &mut Tx<'_>, org: &OrgId, now: Time) -> Result<Option<BucketId>> {
    let sql = "select bucket_id from lifecycle_passes where org_id = $1 and due_us <= $2 \
               order by due_us, bucket_id limit 1";
    tx.row(sql, &params![org, now], |row| row.id())
}
