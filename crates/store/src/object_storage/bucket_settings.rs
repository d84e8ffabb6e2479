//! Settings of buckets. Each is a text that the caller of these functions writes and reads.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tarn_model::ids::BucketId;

use crate::db::params;
use crate::{Error, Result, Tx};

/// What a setting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// The tags of the bucket.
    Tags,
    /// Its rules for browsers.
    Cors,
    /// Its rules for the life of objects.
    Lifecycle,
}

impl SettingKind {
    /// Returns the name in the database.
    fn name(self) -> &'static str {
        match self {
            SettingKind::Tags => "TAGS",
            SettingKind::Cors => "CORS",
            SettingKind::Lifecycle => "LIFECYCLE",
        }
    }
}

/// Returns a setting of a bucket.
pub fn get<T: DeserializeOwned>(tx: &mut Tx<'_>, bucket: &BucketId, kind: SettingKind) -> Result<Option<T>> {
    let sql = "select value from bucket_settings where bucket_id = $1 and kind = $2";
    tx.row(sql, &params![bucket, kind.name()], |row| read_value(&row.text()?))
}

/// Sets or replaces a setting of a bucket.
pub fn set<T: Serialize>(tx: &mut Tx<'_>, bucket: &BucketId, kind: SettingKind, value: &T) -> Result<()> {
    let value = serde_json::to_string(value).map_err(|error| Error::Corrupt(error.to_string()))?;
    remove(tx, bucket, kind)?;
    tx.run(
        "insert into bucket_settings (bucket_id, kind, value) values ($1, $2, $3)",
        &params![bucket, kind.name(), value],
    )
}

/// Removes a setting of a bucket, if it has it.
pub fn remove(tx: &mut Tx<'_>, bucket: &BucketId, kind: SettingKind) -> Result<()> {
    let sql = "delete from bucket_settings where bucket_id = $1 and kind = $2";
    tx.execute(sql, &params![bucket, kind.name()]).map(drop)
}

/// Removes all settings of a bucket.
pub(super) fn remove_all(tx: &mut Tx<'_>, bucket: &BucketId) -> Result<()> {
    tx.execute("delete from bucket_settings where bucket_id = $1", &params![bucket]).map(drop)
}

fn read_value<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::Corrupt(error.to_string()))
}
