//! Deleting: an object, one of its versions, or, where versions are kept, only the sight of it.

use tarn_model::buckets::{Bucket, Versioning};
use tarn_model::ids::{ContentId, FileId, OrgId, VersionId};
use tarn_model::objects::{Body, MAX_PARTS, Marker, Object, Version};
use tarn_store::{Tx, accounts, objects, parts, versions};

use crate::put::next_sequence;
use crate::{Objects, Result, buckets};

/// What a deletion did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// The version that was deleted, or the mark of deletion that was made; the inner `None` is "null". `None` where the
    /// bucket keeps no versions.
    pub version: Option<Option<VersionId>>,
    /// Whether that version is the mark of a deletion.
    pub marker: bool,
}

impl Objects {
    /// Deletes a key: for good where no versions are kept, else by a mark. A key that is not there is deleted already.
    pub async fn delete(&self, org: &OrgId, bucket: &str, key: &str) -> Result<Deleted> {
        let (org, bucket, key) = (org.clone(), bucket.to_owned(), key.to_owned());
        let delete = move |tx: &mut Tx<'_>| {
            let bucket = buckets::find(tx, &org, &bucket)?;
            let mut files = Vec::new();
            let deleted = delete(tx, &bucket, &key, &mut files)?;
            Ok((deleted, files))
        };
        self.write_and_remove(delete).await
    }

    /// Deletes one version for good; `None` is "null". One that is not there is deleted already.
    pub async fn delete_version(
        &self,
        org: &OrgId,
        bucket: &str,
        key: &str,
        version: Option<&VersionId>,
    ) -> Result<Deleted> {
        let (org, bucket, key, version) = (org.clone(), bucket.to_owned(), key.to_owned(), version.cloned());
        let delete = move |tx: &mut Tx<'_>| {
            let bucket = buckets::find(tx, &org, &bucket)?;
            let mut files = Vec::new();
            let deleted = delete_version(tx, &bucket, &key, version.as_ref(), &mut files)?;
            Ok((deleted, files))
        };
        self.write_and_remove(delete).await
    }
}

fn delete(tx: &mut Tx<'_>, bucket: &Bucket, key: &str, files: &mut Vec<FileId>) -> Result<Deleted> {
    let current = objects::get(tx, &bucket.id, key)?;
    let version = match bucket.versioning {
        Versioning::Off => {
            if let Some(object) = current {
                objects::remove(tx, &bucket.id, key)?;
                discard(tx, bucket, &object, files)?;
            }
            return Ok(Deleted::default());
        }
        Versioning::Enabled => Some(VersionId::fresh(tx.ids())),
        Versioning::Suspended => None,
    };
    let sequence = next_sequence(tx, bucket, key, current.as_ref())?;
    if let Some(object) = current {
        objects::remove(tx, &bucket.id, key)?;
        match (&version, &object.version) {
            (None, None) => discard(tx, bucket, &object, files)?,
            _ => versions::insert(tx, &Version::Object(object))?,
        }
    }
    if version.is_none() {
        discard_null(tx, bucket, key, files)?;
    }
    let (id, modified) = (bucket.id.clone(), tx.now());
    let marker = Marker { bucket: id, key: key.to_owned(), version: version.clone(), sequence, modified };
    versions::insert(tx, &Version::Marker(marker))?;
    Ok(Deleted { version: Some(version), marker: true })
}

fn delete_version(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    key: &str,
    version: Option<&VersionId>,
    files: &mut Vec<FileId>,
) -> Result<Deleted> {
    let deleted = |marker| Deleted { version: Some(version.cloned()), marker };
    if let Some(object) = objects::get(tx, &bucket.id, key)?
        && object.version.as_ref() == version
    {
        objects::remove(tx, &bucket.id, key)?;
        discard(tx, bucket, &object, files)?;
        reveal(tx, bucket, key)?;
        return Ok(deleted(false));
    }
    let Some(found) = versions::get(tx, &bucket.id, key, version)? else {
        return Ok(deleted(false));
    };
    versions::remove(tx, &bucket.id, key, found.sequence())?;
    let marker = match &found {
        Version::Object(object) => {
            discard(tx, bucket, object, files)?;
            false
        }
        Version::Marker(_) => true,
    };
    // What a mark of deletion hid is seen again when the mark is gone.
    if objects::get(tx, &bucket.id, key)?.is_none() {
        reveal(tx, bucket, key)?;
    }
    Ok(deleted(marker))
}

/// Makes the newest version of a key the one that is seen, unless that is the mark of a deletion.
fn reveal(tx: &mut Tx<'_>, bucket: &Bucket, key: &str) -> Result<()> {
    if let Some(Version::Object(object)) = versions::newest(tx, &bucket.id, key)? {
        versions::remove(tx, &bucket.id, key, object.sequence)?;
        objects::put(tx, &object)?;
    }
    Ok(())
}

/// Forgets the version "null" among the older ones: where versions are suspended it is the one that is overwritten.
pub(crate) fn discard_null(tx: &mut Tx<'_>, bucket: &Bucket, key: &str, files: &mut Vec<FileId>) -> Result<()> {
    if let Some(old) = versions::get(tx, &bucket.id, key, None)? {
        versions::remove(tx, &bucket.id, key, old.sequence())?;
        if let Version::Object(object) = &old {
            discard(tx, bucket, object, files)?;
        }
    }
    Ok(())
}

/// Takes an object whose row is gone out of the account, and forgets its parts. Their files are to be removed after the
/// commit.
pub(crate) fn discard(tx: &mut Tx<'_>, bucket: &Bucket, object: &Object, files: &mut Vec<FileId>) -> Result<()> {
    if let Body::Parts(content) = &object.body {
        discard_parts(tx, content, files)?;
    }
    Ok(accounts::release_usage(tx, &bucket.org, object.size, 1)?)
}

/// Forgets the parts of a content and says how many bytes they had.
pub(crate) fn discard_parts(tx: &mut Tx<'_>, content: &ContentId, files: &mut Vec<FileId>) -> Result<u64> {
    let all = parts::list(tx, content, 0, MAX_PARTS)?;
    parts::remove_all(tx, content)?;
    let bytes = all.iter().map(|part| part.size).sum();
    files.extend(all.into_iter().map(|part| part.file));
    Ok(bytes)
}
