//! Buckets.

use tarn_model::buckets::{Bucket, Versioning};
use tarn_model::ids::{BucketId, OrgId};

use crate::db::{Row, params};
use crate::{Error, Result, Tx};

macro_rules! select {
    ($rest:literal) => {
        concat!("select id, org_id, creator_id, name, versioning, created_us from buckets ", $rest)
    };
}

/// Adds a bucket. `Taken` when the organization has a bucket of that name.
pub fn insert(tx: &mut Tx<'_>, bucket: &Bucket) -> Result<()> {
    let sql =
        "insert into buckets (id, org_id, creator_id, name, versioning, created_us) values ($1, $2, $3, $4, $5, $6)";
    tx.run(sql, &params!(bucket: id, org, creator, name, versioning.name(), created))
}

/// Returns the bucket with this name in an organization.
pub fn find(tx: &mut Tx<'_>, org: &OrgId, name: &str) -> Result<Option<Bucket>> {
    tx.row(select!("where org_id = $1 and name = $2"), &params![org, name], read_bucket)
}

/// Returns the bucket with this id.
pub fn get(tx: &mut Tx<'_>, id: &BucketId) -> Result<Option<Bucket>> {
    tx.row(select!("where id = $1"), &params![id], read_bucket)
}

/// Returns the buckets of an organization, ordered by name.
pub fn list(tx: &mut Tx<'_>, org: &OrgId) -> Result<Vec<Bucket>> {
    tx.rows(select!("where org_id = $1 order by name"), &params![org], read_bucket)
}

/// Returns the number of buckets of an organization.
pub fn count(tx: &mut Tx<'_>, org: &OrgId) -> Result<u64> {
    tx.single("select count(*) from buckets where org_id = $1", &params![org], |row| row.count())
}

/// Changes whether a bucket keeps old versions.
pub fn set_versioning(tx: &mut Tx<'_>, bucket: &BucketId, versioning: Versioning) -> Result<()> {
    let sql = "update buckets set versioning = $1 where id = $2";
    tx.execute_guarded(sql, &params![versioning.name(), bucket])
}

/// Returns whether a bucket holds no object, no old version and no delete marker.
pub fn is_empty(tx: &mut Tx<'_>, bucket: &BucketId) -> Result<bool> {
    let sql = "select 1 from objects where bucket_id = $1 union all \
               select 1 from versions where bucket_id = $1 limit 1";
    Ok(!tx.has_row(sql, &params![bucket])?)
}

/// Removes a bucket, which must be empty, with its settings.
pub fn remove(tx: &mut Tx<'_>, bucket: &BucketId) -> Result<()> {
    super::bucket_settings::remove_all(tx, bucket)?;
    super::lifecycle_passes::remove(tx, bucket)?;
    tx.execute_guarded("delete from buckets where id = $1", &params![bucket])
}

fn read_bucket(row: &mut Row) -> Result<Bucket> {
    Ok(Bucket {
        id: row.id()?,
        org: row.id()?,
        creator: row.maybe_id()?,
        name: row.text()?,
        versioning: {
            let name = row.text()?;
            Versioning::from_name(&name)
                .ok_or_else(|| Error::Corrupt(format!("there is no versioning state {name}")))?
        },
        created: row.time()?,
    })
}
