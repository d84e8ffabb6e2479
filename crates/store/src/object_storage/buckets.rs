//! Buckets.

use tarn_model::buckets::{Bucket, Versioning};
use tarn_model::ids::{BucketId, OrgId};

use crate::db::Row;
use crate::{Error, Result, Tx};

macro_rules! select {
    ($rest:literal) => {
        concat!("select id, org_id, name, versioning, created_us from buckets ", $rest)
    };
}

/// Adds a bucket. `Taken` when the organization has a bucket of that name.
pub fn insert(tx: &mut Tx<'_>, bucket: &Bucket) -> Result<()> {
    let sql = "insert into buckets (id, org_id, name, versioning, created_us) values ($1, $2, $3, $4, $5)";
    tx.execute(
        sql,
        &[
            bucket.id.as_str().into(),
            bucket.org.as_str().into(),
            (&bucket.name).into(),
            bucket.versioning.name().into(),
            bucket.created.into(),
        ],
    )?;
    Ok(())
}

/// Returns the bucket with this name in an organization.
pub fn find(tx: &mut Tx<'_>, org: &OrgId, name: &str) -> Result<Option<Bucket>> {
    tx.query_one(select!("where org_id = $1 and name = $2"), &[org.as_str().into(), name.into()])?
        .map(read_bucket)
        .transpose()
}

/// Returns the bucket with this id.
pub fn get(tx: &mut Tx<'_>, id: &BucketId) -> Result<Option<Bucket>> {
    tx.query_one(select!("where id = $1"), &[id.as_str().into()])?.map(read_bucket).transpose()
}

/// Returns the buckets of an organization, ordered by name.
pub fn list(tx: &mut Tx<'_>, org: &OrgId) -> Result<Vec<Bucket>> {
    tx.query(select!("where org_id = $1 order by name"), &[org.as_str().into()])?.into_iter().map(read_bucket).collect()
}

/// Returns the number of buckets of an organization.
pub fn count(tx: &mut Tx<'_>, org: &OrgId) -> Result<u64> {
    let row = tx.query_one("select count(*) from buckets where org_id = $1", &[org.as_str().into()])?;
    row.ok_or_else(|| Error::Corrupt("no number".to_owned()))?.count()
}

/// Changes whether a bucket keeps old versions.
pub fn set_versioning(tx: &mut Tx<'_>, bucket: &BucketId, versioning: Versioning) -> Result<()> {
    let sql = "update buckets set versioning = $1 where id = $2";
    tx.execute_guarded(sql, &[versioning.name().into(), bucket.as_str().into()])
}

/// Returns whether a bucket holds no object, no old version and no delete marker.
pub fn is_empty(tx: &mut Tx<'_>, bucket: &BucketId) -> Result<bool> {
    let sql = "select 1 from objects where bucket_id = $1 union all \
               select 1 from versions where bucket_id = $1 limit 1";
    Ok(tx.query_one(sql, &[bucket.as_str().into()])?.is_none())
}

/// Removes a bucket, which must be empty.
pub fn remove(tx: &mut Tx<'_>, bucket: &BucketId) -> Result<()> {
    tx.execute_guarded("delete from buckets where id = $1", &[bucket.as_str().into()])
}

fn read_bucket(mut row: Row) -> Result<Bucket> {
    Ok(Bucket {
        id: row.id()?,
        org: row.id()?,
        name: row.text()?,
        versioning: {
            let name = row.text()?;
            Versioning::from_name(&name)
                .ok_or_else(|| Error::Corrupt(format!("there is no versioning state {name}")))?
        },
        created: row.time()?,
    })
}
