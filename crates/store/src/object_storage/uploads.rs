//! Multipart uploads that are not complete.

use tarn_model::Time;
use tarn_model::ids::{BucketId, ContentId};
use tarn_model::objects::{Algorithm, Scope, Upload};

use crate::db::{Row, params};
use crate::{Error, Result, Tx};

macro_rules! select {
    ($rest:literal) => {
        concat!("select id, bucket_id, key, details, algorithm, checksum_scope, created_us from uploads ", $rest)
    };
}

/// Adds an upload.
pub fn insert(tx: &mut Tx<'_>, upload: &Upload) -> Result<()> {
    let sql = "insert into uploads (id, bucket_id, key, created_us, details, algorithm, checksum_scope) \
               values ($1, $2, $3, $4, $5, $6, $7)";
    let details = serde_json::to_string(&upload.details).map_err(|error| Error::Corrupt(error.to_string()))?;
    let (algorithm, scope) = upload.checksum.map(|(algorithm, scope)| (algorithm.name(), scope.name())).unzip();
    tx.run(sql, &params!(upload: id, bucket, key, created; details, algorithm, scope))
}

/// Returns the upload with this id.
pub fn get(tx: &mut Tx<'_>, id: &ContentId) -> Result<Option<Upload>> {
    tx.row(select!("where id = $1"), &params![id], read_upload)
}

/// Returns the uploads of one key after this id, ordered by id.
pub fn list_of(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, after: &str, limit: u32) -> Result<Vec<Upload>> {
    let sql = select!("where bucket_id = $1 and key = $2 and id > $3 order by bucket_id, key, id limit $4");
    tx.rows(sql, &params![bucket, key, after, limit], read_upload)
}

/// Returns uploads ordered by key and id, starting with the key `from` and ending before `until`.
pub fn list(tx: &mut Tx<'_>, bucket: &BucketId, from: &str, until: Option<&str>, limit: u32) -> Result<Vec<Upload>> {
    match until {
        Some(until) => {
            let sql = select!("where bucket_id = $1 and key >= $2 and key < $3 order by bucket_id, key, id limit $4");
            tx.rows(sql, &params![bucket, from, until, limit], read_upload)
        }
        None => {
            let sql = select!("where bucket_id = $1 and key >= $2 order by bucket_id, key, id limit $3");
            tx.rows(sql, &params![bucket, from, limit], read_upload)
        }
    }
}

/// Returns uploads created before `time`, oldest first, after the one given.
pub fn created_before(tx: &mut Tx<'_>, time: Time, after: (Time, &str), limit: u32) -> Result<Vec<(Time, ContentId)>> {
    let sql = "select created_us, id from uploads where created_us < $1 and created_us >= $2 \
               and (created_us > $2 or id > $3) order by created_us, id limit $4";
    tx.rows(sql, &params![time, after.0, after.1, limit], |row| Ok((row.time()?, row.id()?)))
}

/// Returns some uploads of a bucket.
pub fn some_of_bucket(tx: &mut Tx<'_>, bucket: &BucketId, limit: u32) -> Result<Vec<ContentId>> {
    tx.rows("select id from uploads where bucket_id = $1 limit $2", &params![bucket, limit], |row| row.id())
}

/// Removes an upload. `Conflict` when it is already removed.
pub fn remove(tx: &mut Tx<'_>, id: &ContentId) -> Result<()> {
    tx.execute_guarded("delete from uploads where id = $1", &params![id])
}

fn read_upload(row: &mut Row) -> Result<Upload> {
    let (id, bucket, key) = (row.id()?, row.id()?, row.text()?);
    let details = serde_json::from_str(&row.text()?).map_err(|error| Error::Corrupt(error.to_string()))?;
    let checksum = match (row.maybe_text()?, row.maybe_text()?) {
        (Some(algorithm), Some(scope)) => match (Algorithm::from_name(&algorithm), Scope::from_name(&scope)) {
            (Some(algorithm), Some(scope)) => Some((algorithm, scope)),
            _ => return Err(Error::Corrupt(format!("there is no checksum {algorithm} with scope {scope}"))),
        },
        _ => None,
    };
    Ok(Upload { id, bucket, key, details, checksum, created: row.time()? })
}
