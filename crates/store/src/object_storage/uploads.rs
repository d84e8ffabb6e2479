//! Multipart uploads that are not complete.

use tarn_model::Time;
use tarn_model::ids::{BucketId, ContentId};
use tarn_model::objects::{Algorithm, Scope, Upload};

use crate::db::Row;
use crate::{Error, Result, Tx};

macro_rules! select {
    ($rest:literal) => {
        concat!("select id, bucket_id, key, details, algorithm, checksum_scope, created_us from uploads ", $rest)
    };
}

/// Adds an upload.
pub fn insert(tx: &mut Tx<'_>, upload: &Upload) -> Result<()> {
    let sql = "insert into uploads (id, bucket_id, key, details, algorithm, checksum_scope, created_us) \
               values ($1, $2, $3, $4, $5, $6, $7)";
    let details = serde_json::to_string(&upload.details).map_err(|error| Error::Corrupt(error.to_string()))?;
    tx.execute(
        sql,
        &[
            upload.id.as_str().into(),
            upload.bucket.as_str().into(),
            (&upload.key).into(),
            (&details).into(),
            upload.checksum.map(|(algorithm, _)| algorithm.name()).into(),
            upload.checksum.map(|(_, scope)| scope.name()).into(),
            upload.created.into(),
        ],
    )?;
    Ok(())
}

/// Returns the upload with this id.
pub fn get(tx: &mut Tx<'_>, id: &ContentId) -> Result<Option<Upload>> {
    tx.query_one(select!("where id = $1"), &[id.as_str().into()])?.map(read_upload).transpose()
}

/// Returns the uploads of one key after this id, ordered by id.
pub fn list_of(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, after: &str, limit: u32) -> Result<Vec<Upload>> {
    let sql = select!("where bucket_id = $1 and key = $2 and id > $3 order by bucket_id, key, id limit $4");
    let rows = tx.query(sql, &[bucket.as_str().into(), key.into(), after.into(), limit.into()])?;
    rows.into_iter().map(read_upload).collect()
}

/// Returns uploads ordered by key and id, starting with the key `from` and ending before `until`.
pub fn list(tx: &mut Tx<'_>, bucket: &BucketId, from: &str, until: Option<&str>, limit: u32) -> Result<Vec<Upload>> {
    let rows = match until {
        Some(until) => {
            let sql = select!("where bucket_id = $1 and key >= $2 and key < $3 order by bucket_id, key, id limit $4");
            tx.query(sql, &[bucket.as_str().into(), from.into(), until.into(), limit.into()])?
        }
        None => {
            let sql = select!("where bucket_id = $1 and key >= $2 order by bucket_id, key, id limit $3");
            tx.query(sql, &[bucket.as_str().into(), from.into(), limit.into()])?
        }
    };
    rows.into_iter().map(read_upload).collect()
}

/// Returns uploads created before `time`, oldest first, after the one given.
pub fn created_before(tx: &mut Tx<'_>, time: Time, after: (Time, &str), limit: u32) -> Result<Vec<(Time, ContentId)>> {
    let sql = "select created_us, id from uploads where created_us < $1 and created_us >= $2 \
               and (created_us > $2 or id > $3) order by created_us, id limit $4";
    let rows = tx.query(sql, &[time.into(), after.0.into(), after.1.into(), limit.into()])?;
    rows.into_iter().map(|mut row| Ok((row.time()?, row.id()?))).collect()
}

/// Returns some uploads of a bucket.
pub fn some_of_bucket(tx: &mut Tx<'_>, bucket: &BucketId, limit: u32) -> Result<Vec<ContentId>> {
    let rows =
        tx.query("select id from uploads where bucket_id = $1 limit $2", &[bucket.as_str().into(), limit.into()])?;
    rows.into_iter().map(|mut row| row.id()).collect()
}

/// Removes an upload. `Conflict` when it is already removed.
pub fn remove(tx: &mut Tx<'_>, id: &ContentId) -> Result<()> {
    tx.execute_guarded("delete from uploads where id = $1", &[id.as_str().into()])
}

fn read_upload(mut row: Row) -> Result<Upload> {
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
