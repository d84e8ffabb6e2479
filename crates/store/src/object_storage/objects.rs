//! Current objects: one row per key.

use tarn_model::ids::{BucketId, OrgId};
use tarn_model::objects::{Body, ListedObject, Marker, Object, Version};

use crate::db::{Param, Row};
use crate::{Error, Result, Tx};

/// Saves the current object of a key and replaces the previous one.
pub fn put(tx: &mut Tx<'_>, object: &Object) -> Result<()> {
    let sql = "insert into objects (bucket_id, key, version_id, sequence, modified_us, size, etag, content_id, details, data) \
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict (bucket_id, key) do update set \
               version_id = excluded.version_id, sequence = excluded.sequence, modified_us = excluded.modified_us, \
               size = excluded.size, etag = excluded.etag, content_id = excluded.content_id, details = excluded.details, \
               data = excluded.data";
    let details = details_of(object)?;
    tx.execute(sql, &columns(object, &details))?;
    Ok(())
}

/// Returns the current object of a key.
pub fn get(tx: &mut Tx<'_>, bucket: &BucketId, key: &str) -> Result<Option<Object>> {
    let sql = "select bucket_id, key, version_id, sequence, modified_us, size, etag, content_id, details, data from objects \
               where bucket_id = $1 and key = $2";
    tx.query_one(sql, &[bucket.as_str().into(), key.into()])?.map(read_object).transpose()
}

/// Returns the current object of a key in the named bucket of an organization: one query instead of two.
pub fn find(tx: &mut Tx<'_>, org: &OrgId, bucket: &str, key: &str) -> Result<Option<Object>> {
    let sql = "select o.bucket_id, o.key, o.version_id, o.sequence, o.modified_us, o.size, o.etag, o.content_id, o.details, \
               o.data from buckets b join objects o on o.bucket_id = b.id \
               where b.org_id = $1 and b.name = $2 and o.key = $3";
    tx.query_one(sql, &[org.as_str().into(), bucket.into(), key.into()])?.map(read_object).transpose()
}

/// Removes the current object of a key.
pub fn remove(tx: &mut Tx<'_>, bucket: &BucketId, key: &str) -> Result<()> {
    tx.execute("delete from objects where bucket_id = $1 and key = $2", &[bucket.as_str().into(), key.into()])?;
    Ok(())
}

/// Saves the details of an object. `Conflict` when it was replaced since it was read.
pub fn save_details(tx: &mut Tx<'_>, object: &Object) -> Result<()> {
    let sql = "update objects set details = $1 where bucket_id = $2 and key = $3 and sequence = $4";
    let details = details_of(object)?;
    tx.execute_guarded(
        sql,
        &[(&details).into(), object.bucket.as_str().into(), (&object.key).into(), object.sequence.into()],
    )
}

/// Returns keys in byte order, starting with `from` and ending before `until`.
pub fn list(
    tx: &mut Tx<'_>,
    bucket: &BucketId,
    from: &str,
    until: Option<&str>,
    limit: u32,
) -> Result<Vec<ListedObject>> {
    let rows = match until {
        Some(until) => {
            let sql = "select key, version_id, sequence, modified_us, size, etag from objects \
                       where bucket_id = $1 and key >= $2 and key < $3 order by key limit $4";
            tx.query(sql, &[bucket.as_str().into(), from.into(), until.into(), limit.into()])?
        }
        None => {
            let sql = "select key, version_id, sequence, modified_us, size, etag from objects \
                       where bucket_id = $1 and key >= $2 order by key limit $3";
            tx.query(sql, &[bucket.as_str().into(), from.into(), limit.into()])?
        }
    };
    rows.into_iter().map(read_listed).collect()
}

/// The columns of an object, in the order of the insert statements.
pub(crate) fn columns<'a>(object: &'a Object, details: &'a str) -> [Param<'a>; 10] {
    let (content, data) = match &object.body {
        Body::Inline(data) => (Param::Null, Param::Bytes(data)),
        Body::Parts(content) => (content.as_str().into(), Param::Null),
    };
    [
        object.bucket.as_str().into(),
        (&object.key).into(),
        object.version.as_ref().map(|version| version.as_str()).into(),
        object.sequence.into(),
        object.modified.into(),
        object.size.into(),
        (&object.etag).into(),
        content,
        details.into(),
        data,
    ]
}

pub(crate) fn details_of(object: &Object) -> Result<String> {
    serde_json::to_string(&object.details).map_err(|error| Error::Corrupt(error.to_string()))
}

fn read_object(row: Row) -> Result<Object> {
    match read_version(row)? {
        Version::Object(object) => Ok(object),
        Version::Marker(_) => Err(Error::Corrupt("an object has no ETag".to_owned())),
    }
}

/// Reads a row of objects or versions. A row without an ETag is a delete marker.
pub(crate) fn read_version(mut row: Row) -> Result<Version> {
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

pub(crate) fn read_listed(mut row: Row) -> Result<ListedObject> {
    let (key, version, sequence, modified) = (row.text()?, row.maybe_id()?, row.integer()?, row.time()?);
    let size = row.count()?;
    Ok(ListedObject { key, version, sequence, modified, object: row.maybe_text()?.map(|etag| (size, etag)) })
}
