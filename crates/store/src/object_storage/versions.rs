//! Old versions of objects, and delete markers.

use tarn_model::Time;
use tarn_model::ids::{BucketId, VersionId};
use tarn_model::objects::{ListedObject, Object, Version};

use crate::db::params;
use crate::objects::{details_of, read_listed, read_version, run_with_columns};
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
    match version {
        Version::Object(object) => {
            let sql = "insert into versions (bucket_id, key, version_id, sequence, modified_us, size, etag, content_id, details, \
                       data) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
            run_with_columns(tx, sql, object)
        }
        Version::Marker(marker) => {
            let sql = "insert into versions (bucket_id, key, version_id, sequence, modified_us, size, details) \
                       values ($1, $2, $3, $4, $5, 0, '{}')";
            tx.run(sql, &params!(marker: bucket, key, version, sequence, modified))
        }
    }
}

/// Returns the version with this id; `None` is the one that S3 calls "null".
pub fn get(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, version: Option<&VersionId>) -> Result<Option<Version>> {
    match version {
        Some(version) => {
            let sql = select!("where bucket_id = $1 and key = $2 and version_id = $3");
            tx.row(sql, &params![bucket, key, version], read_version)
        }
        None => {
            let sql = select!("where bucket_id = $1 and key = $2 and version_id is null");
            tx.row(sql, &params![bucket, key], read_version)
        }
    }
}

/// Returns the version of a key with this sequence number.
pub fn at(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, sequence: i64) -> Result<Option<Version>> {
    let sql = select!("where bucket_id = $1 and key = $2 and sequence = $3");
    tx.row(sql, &params![bucket, key, sequence], read_version)
}

/// Returns when the versions of a key were modified that are newer than this sequence number, oldest first.
pub fn newer(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, sequence: i64, limit: u32) -> Result<Vec<Time>> {
    let sql = "select modified_us from versions where bucket_id = $1 and key = $2 and sequence > $3 \
               order by sequence limit $4";
    tx.rows(sql, &params![bucket, key, sequence, limit], |row| row.time())
}

/// Returns the newest version of a key.
pub fn newest(tx: &mut Tx<'_>, bucket: &BucketId, key: &str) -> Result<Option<Version>> {
    let sql = select!("where bucket_id = $1 and key = $2 order by sequence desc limit 1");
    tx.row(sql, &params![bucket, key], read_version)
}

/// Removes a version.
pub fn remove(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, sequence: i64) -> Result<()> {
    let sql = "delete from versions where bucket_id = $1 and key = $2 and sequence = $3";
    tx.run(sql, &params![bucket, key, sequence])
}

/// Saves the details of a version.
pub fn save_details(tx: &mut Tx<'_>, object: &Object) -> Result<()> {
    let sql = "update versions set details = $1 where bucket_id = $2 and key = $3 and sequence = $4";
    let details = details_of(object)?;
    tx.execute_guarded(sql, &params![details, object.bucket, object.key, object.sequence])
}

/// Returns the versions of one key that are older than `before`, newest first.
pub fn list_of(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, before: i64, limit: u32) -> Result<Vec<ListedObject>> {
    let sql = select_listed!("where bucket_id = $1 and key = $2 and sequence < $3 order by sequence desc limit $4");
    tx.rows(sql, &params![bucket, key, before, limit], read_listed)
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
    match until {
        Some(until) => {
            let sql = select_listed!(
                "where bucket_id = $1 and key >= $2 and key < $3 order by bucket_id, key, sequence desc limit $4"
            );
            tx.rows(sql, &params![bucket, from, until, limit], read_listed)
        }
        None => {
            let sql =
                select_listed!("where bucket_id = $1 and key >= $2 order by bucket_id, key, sequence desc limit $3");
            tx.rows(sql, &params![bucket, from, limit], read_listed)
        }
    }
}

/// Returns some versions of a bucket that is being emptied.
pub fn some_of_bucket(tx: &mut Tx<'_>, bucket: &BucketId, limit: u32) -> Result<Vec<Version>> {
    tx.rows(select!("where bucket_id = $1 limit $2"), &params![bucket, limit], read_version)
}
