//! Current objects: one row per key.

use tarn_model::ids::{BucketId, OrgId};
use tarn_model::objects::{Body, ListedObject, Marker, Object, Version};

use crate::db::{Row, params};
use crate::{Error, Result, Tx};

/// Saves the current object of a key and replaces the previous one.
pub fn put(tx: &mut Tx<'_>, object: &Object) -> Result<()> {
    let sql = "insert into objects (bucket_id, key, version_id, sequence, modified_us, size, etag, content_id, details, data) \
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict (bucket_id, key) do update set \
               version_id = excluded.version_id, sequence = excluded.sequence, modified_us = excluded.modified_us, \
               size = excluded.size, etag = excluded.etag, content_id = excluded.content_id, details = excluded.details, \
               data = excluded.data";
    run_with_columns(tx, sql, object)
}

/// Returns the current object of a key.
pub fn get(tx: &mut Tx<'_>, bucket: &BucketId, key: &str) -> Result<Option<Object>> {
    let sql = "select bucket_id, key, version_id, sequence, modified_us, size, etag, content_id, details, data from objects \
               where bucket_id = $1 and key = $2";
    tx.row(sql, &params![bucket, key], read_object)
}

/// Returns the current object of a key in the named bucket of an organization: one query instead of two.
pub fn find(tx: &mut Tx<'_>, org: &OrgId, bucket: &str, key: &str) -> Result<Option<Object>> {
    let sql = "select o.bucket_id, o.key, o.version_id, o.sequence, o.modified_us, o.size, o.etag, o.content_id, o.details, \
               o.data from buckets b join objects o on o.bucket_id = b.id \
               where b.org_id = $1 and b.name = $2 and o.key = $3";
    tx.row(sql, &params![org, bucket, key], read_object)
}

/// Removes the current object of a key.
pub fn remove(tx: &mut Tx<'_>, bucket: &BucketId, key: &str) -> Result<()> {
    tx.run("delete from objects where bucket_id = $1 and key = $2", &params![bucket, key])
}

/// Saves the details of an object. `Conflict` when it was replaced since it was read.
pub fn save_details(tx: &mut Tx<'_>, object: &Object) -> Result<()> {
    let sql = "update objects set details = $1 where bucket_id = $2 and key = $3 and sequence = $4";
    let details = details_of(object)?;
    tx.execute_guarded(sql, &params![details, object.bucket, object.key, object.sequence])
}

/// Returns keys in byte order, starting with `from` and ending before `until`.
pub fn list(
    tx: &mut Tx<'_>,
    bucket: &BucketId,
    from: &str,
    until: Option<&str>,
    limit: u32,
) -> Result<Vec<ListedObject>> {
    match until {
        Some(until) => {
            let sql = "select key, version_id, sequence, modified_us, size, etag from objects \
                       where bucket_id = $1 and key >= $2 and key < $3 order by key limit $4";
            tx.rows(sql, &params![bucket, from, until, limit], read_listed)
        }
        None => {
            let sql = "select key, version_id, sequence, modified_us, size, etag from objects \
                       where bucket_id = $1 and key >= $2 order by key limit $3";
            tx.rows(sql, &params![bucket, from, limit], read_listed)
        }
    }
}

/// Runs a statement with the columns of an object, in the order of the insert statements.
pub(crate) fn run_with_columns(tx: &mut Tx<'_>, sql: &'static str, object: &Object) -> Result<()> {
    let (content, data) = match &object.body {
        Body::Inline(data) => (None, Some(data.as_slice())),
        Body::Parts(content) => (Some(content), None),
    };
    let details = details_of(object)?;
    tx.run(sql, &params!(object: bucket, key, version, sequence, modified, size, etag; content, details, data))
}

pub(crate) fn details_of(object: &Object) -> Result<String> {
    serde_json::to_string(&object.details).map_err(|error| Error::Corrupt(error.to_string()))
}

fn read_object(row: &mut Row) -> Result<Object> {
    match read_version(row)? {
        Version::Object(object) => Ok(object),
        Version::Marker(_) => Err(Error::Corrupt("an object has no ETag".to_owned())),
    }
}

/// Reads a row of objects or versions. A row without an ETag is a delete marker.
pub(crate) fn read_version(row: &mut Row) -> Result<Version> {
    let (bucket, key, version) = (row.id()?, row.text()?, row.maybe_id()?);
    let (sequence, modified, size) = (row.integer()?, row.time()?, row.count()?);
    let Some(etag) = row.maybe_text()? else {
        return Ok(Version::Marker(Marker { bucket, key, version, sequence, modified }));
    };
    let (content, details) = (row.maybe_id()?, row.text()?);
    let details = serde_json::from_str(&details).map_err(|error| Error::Corrupt(error.to_string()))?;
    let body = match content {
        Some(content) => Body::Parts(content),
        None => Body::Inline(row.bytes()?),
    };
    Ok(Version::Object(Object { bucket, key, version, sequence, modified, size, etag, details, body }))
}

pub(crate) fn read_listed(row: &mut Row) -> Result<ListedObject> {
    let (key, version, sequence, modified) = (row.text()?, row.maybe_id()?, row.integer()?, row.time()?);
    let size = row.count()?;
    Ok(ListedObject { key, version, sequence, modified, object: row.maybe_text()?.map(|etag| (size, etag)) })
}
