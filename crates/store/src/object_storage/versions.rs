//! Old versions of objects, and delete markers.

use tarn_model::ids::{BucketId, VersionId};
use tarn_model::objects::{ListedObject, Object, Version};

use crate::db::Param;
use crate::objects::{columns, details_of, read_listed, read_version};
use crate::{Result, Tx};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select bucket_id, key, version_id, sequence, modified_us, size, etag, content_id, details, data from versions ",
            $rest
        )
    };
}

macro_rules! select_listed {
    ($rest:literal) => {
        concat!("select key, version_id, sequence, modified_us, size, etag from versions ", $rest)
    };
}

/// Adds a version.
pub fn insert(tx: &mut Tx<'_>, version: &Version) -> Result<()> {
    let sql = "insert into versions (bucket_id, key, version_id, sequence, modified_us, size, etag, content_id, details, data) \
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    match version {
        Version::Object(object) => {
            let details = details_of(object)?;
            tx.execute(sql, &columns(object, &details))?;
        }
        Version::Marker(marker) => {
            let id = marker.version.as_ref().map(|version| version.as_str());
            let place = [marker.bucket.as_str().into(), (&marker.key).into(), id.into()];
            let rest = [
                marker.sequence.into(),
                marker.modified.into(),
                0_u32.into(),
                Param::Null,
                Param::Null,
                "{}".into(),
                Param::Null,
            ];
            tx.execute(sql, &[place.as_slice(), rest.as_slice()].concat())?;
        }
    }
    Ok(())
}

/// Returns the version with this id; `None` is the one that S3 calls "null".
pub fn get(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, version: Option<&VersionId>) -> Result<Option<Version>> {
    let place = [bucket.as_str().into(), key.into()];
    let row = match version {
        Some(version) => {
            let sql = select!("where bucket_id = $1 and key = $2 and version_id = $3");
            tx.query_one(sql, &[place[0], place[1], version.as_str().into()])?
        }
        None => tx.query_one(select!("where bucket_id = $1 and key = $2 and version_id is null"), &place)?,
    };
    row.map(read_version).transpose()
}

/// Returns the newest version of a key.
pub fn newest(tx: &mut Tx<'_>, bucket: &BucketId, key: &str) -> Result<Option<Version>> {
    let sql = select!("where bucket_id = $1 and key = $2 order by sequence desc limit 1");
    tx.query_one(sql, &[bucket.as_str().into(), key.into()])?.map(read_version).transpose()
}

/// Removes a version.
pub fn remove(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, sequence: i64) -> Result<()> {
    let sql = "delete from versions where bucket_id = $1 and key = $2 and sequence = $3";
    tx.execute(sql, &[bucket.as_str().into(), key.into(), sequence.into()])?;
    Ok(())
}

/// Saves the details of a version.
pub fn save_details(tx: &mut Tx<'_>, object: &Object) -> Result<()> {
    let sql = "update versions set details = $1 where bucket_id = $2 and key = $3 and sequence = $4";
    let details = details_of(object)?;
    tx.execute_guarded(
        sql,
        &[(&details).into(), object.bucket.as_str().into(), (&object.key).into(), object.sequence.into()],
    )
}

/// Returns the versions of one key that are older than `before`, newest first.
pub fn list_of(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, before: i64, limit: u32) -> Result<Vec<ListedObject>> {
    let sql = select_listed!("where bucket_id = $1 and key = $2 and sequence < $3 order by sequence desc limit $4");
    let rows = tx.query(sql, &[bucket.as_str().into(), key.into(), before.into(), limit.into()])?;
    rows.into_iter().map(read_listed).collect()
}

/// Returns versions ordered by the bytes of their keys, newest first within a key, starting with the key `from` and
/// ending before `until`.
pub fn list(
    tx: &mut Tx<'_>,
    bucket: &BucketId,
    from: &str,
    until: Option<&str>,
    limit: u32,
) -> Result<Vec<ListedObject>> {
    let rows = match until {
        Some(until) => {
            let sql = select_listed!(
                "where bucket_id = $1 and key >= $2 and key < $3 order by bucket_id, key, sequence desc limit $4"
            );
            tx.query(sql, &[bucket.as_str().into(), from.into(), until.into(), limit.into()])?
        }
        None => {
            let sql =
                select_listed!("where bucket_id = $1 and key >= $2 order by bucket_id, key, sequence desc limit $3");
            tx.query(sql, &[bucket.as_str().into(), from.into(), limit.into()])?
        }
    };
    rows.into_iter().map(read_listed).collect()
}

/// Returns some versions of a bucket that is being emptied.
pub fn some_of_bucket(tx: &mut Tx<'_>, bucket: &BucketId, limit: u32) -> Result<Vec<Version>> {
    let rows = tx.query(select!("where bucket_id = $1 limit $2"), &[bucket.as_str().into(), limit.into()])?;
    rows.into_iter().map(read_version).collect()
}
