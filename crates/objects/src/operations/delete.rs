//! Deleting an object or one of its versions. Where versions are kept, a delete marker hides the object.

use tarn_model::buckets::{Bucket, Versioning};
use tarn_model::ids::{ContentId, FileId, OrgId, VersionId};
use tarn_model::objects::{Body, MAX_PARTS, Marker, Object, Version};
use tarn_store::{Tx, accounts, objects, parts, versions};

use crate::find::VersionSelector;
use crate::put::{StoredVersion, next_sequence};
use crate::{Error, Objects, Result, UnmetCondition, buckets, internal};

/// The condition of a deletion: what the version must be that is deleted or hidden. Where there is none, nothing is
/// deleted, and every condition holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteCondition {
    /// It must have this ETag; `*` is any, also that of a delete marker.
    pub if_match: Option<String>,
    /// It must have this size.
    pub size: Option<i64>,
    /// It must have been modified in this second since 1970.
    pub modified_second: Option<i64>,
}

impl DeleteCondition {
    fn check(&self, version: &Version) -> Result<()> {
        let (etag, size, modified) = match version {
            Version::Object(object) => (Some(object.etag.as_str()), Some(object.size as i64), object.modified),
            Version::Marker(marker) => (None, None, marker.modified),
        };
        let unmet = if self.if_match.as_deref().is_some_and(|wanted| wanted != "*" && Some(wanted) != etag) {
            UnmetCondition::Match
        } else if self.size.is_some() && self.size != size {
            UnmetCondition::Size
        } else if self.modified_second.is_some_and(|second| modified.as_micros().div_euclid(1_000_000) != second) {
            UnmetCondition::Modified
        } else {
            return Ok(());
        };
        Err(Error::PreconditionFailed(unmet))
    }

    /// Checks the version that a selector names, if it exists.
    fn check_selected(&self, tx: &mut Tx<'_>, bucket: &Bucket, key: &str, selector: &VersionSelector) -> Result<()> {
        if *self == DeleteCondition::default() {
            return Ok(());
        }
        let current = objects::get(tx, &bucket.id, key)?.map(Version::Object);
        let found = match (selector, current) {
            (VersionSelector::Current, Some(current)) => Some(current),
            (VersionSelector::Current, None) => versions::newest(tx, &bucket.id, key)?,
            (VersionSelector::Version(version), Some(current)) if current.id() == version.as_ref() => Some(current),
            (VersionSelector::Version(version), _) => versions::get(tx, &bucket.id, key, version.as_ref())?,
        };
        found.map_or(Ok(()), |version| self.check(&version))
    }
}

/// The result of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// The deleted version, or the delete marker that was created.
    pub version: StoredVersion,
    /// Whether that version is a delete marker.
    pub marker: bool,
}

impl Objects {
    /// Deletes a key: permanently where no versions are kept, otherwise with a delete marker. Deleting a missing key
    /// succeeds.
    pub async fn delete(&self, org: &OrgId, bucket: &str, key: &str) -> Result<Deleted> {
        self.delete_if(org, bucket, key, &VersionSelector::Current, DeleteCondition::default()).await
    }

    /// Deletes one version permanently; `None` is "null". Deleting a missing version succeeds.
    pub async fn delete_version(
        &self,
        org: &OrgId,
        bucket: &str,
        key: &str,
        version: Option<&VersionId>,
    ) -> Result<Deleted> {
        let selector = VersionSelector::Version(version.cloned());
        self.delete_if(org, bucket, key, &selector, DeleteCondition::default()).await
    }

    /// Deletes a key or one version, if the condition holds in the same transaction.
    pub async fn delete_if(
        &self,
        org: &OrgId,
        bucket: &str,
        key: &str,
        selector: &VersionSelector,
        condition: DeleteCondition,
    ) -> Result<Deleted> {
        let (org, bucket, key, selector) = (org.clone(), bucket.to_owned(), key.to_owned(), selector.clone());
        let delete = move |tx: &mut Tx<'_>| {
            let (bucket, mut files) = (buckets::find(tx, &org, &bucket)?, Vec::new());
            condition.check_selected(tx, &bucket, &key, &selector)?;
            let deleted = match &selector {
                VersionSelector::Current => delete_current(tx, &bucket, &key, &mut files)?,
                VersionSelector::Version(version) => {
                    delete_stored_version(tx, &bucket, &key, version.as_ref(), &mut files)?
                }
            };
            Ok((deleted, files))
        };
        self.write_and_remove(delete).await
    }
}

/// Deletes a key within a transaction: permanently where no versions are kept, otherwise with a delete marker.
pub(crate) fn delete_current(tx: &mut Tx<'_>, bucket: &Bucket, key: &str, files: &mut Vec<FileId>) -> Result<Deleted> {
    let current = objects::get(tx, &bucket.id, key)?;
    let version = match bucket.versioning {
        Versioning::Off => {
            if let Some(object) = current {
                objects::remove(tx, &bucket.id, key)?;
                discard_object(tx, bucket, &object, files)?;
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
            (None, None) => discard_object(tx, bucket, &object, files)?,
            _ => versions::insert(tx, &Version::Object(object))?,
        }
    }
    if version.is_none() {
        discard_null_version(tx, bucket, key, files)?;
    }
    let (id, modified) = (bucket.id.clone(), tx.now());
    let marker = Marker { bucket: id, key: key.to_owned(), version: version.clone(), sequence, modified };
    versions::insert(tx, &Version::Marker(marker))?;
    Ok(Deleted { version: version.into(), marker: true })
}

/// Deletes one version permanently within a transaction.
pub(crate) fn delete_stored_version(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    key: &str,
    version: Option<&VersionId>,
    files: &mut Vec<FileId>,
) -> Result<Deleted> {
    let deleted = |marker| Deleted { version: version.cloned().into(), marker };
    if let Some(object) = objects::get(tx, &bucket.id, key)?
        && object.version.as_ref() == version
    {
        objects::remove(tx, &bucket.id, key)?;
        discard_object(tx, bucket, &object, files)?;
        restore_newest_version(tx, bucket, key)?;
        return Ok(deleted(false));
    }
    let Some(found) = versions::get(tx, &bucket.id, key, version)? else {
        return Ok(deleted(false));
    };
    versions::remove(tx, &bucket.id, key, found.sequence())?;
    let marker = match &found {
        Version::Object(object) => {
            discard_object(tx, bucket, object, files)?;
            false
        }
        Version::Marker(_) => true,
    };
    // An object hidden by a delete marker becomes current when the marker is gone.
    if objects::get(tx, &bucket.id, key)?.is_none() {
        restore_newest_version(tx, bucket, key)?;
    }
    Ok(deleted(marker))
}

/// Makes the newest version of a key current, unless it is a delete marker.
fn restore_newest_version(tx: &mut Tx<'_>, bucket: &Bucket, key: &str) -> Result<()> {
    if let Some(Version::Object(object)) = versions::newest(tx, &bucket.id, key)? {
        versions::remove(tx, &bucket.id, key, object.sequence)?;
        objects::put(tx, &object)?;
    }
    Ok(())
}

/// Removes the old version "null". Where versioning is suspended, it is the version that gets overwritten.
pub(crate) fn discard_null_version(tx: &mut Tx<'_>, bucket: &Bucket, key: &str, files: &mut Vec<FileId>) -> Result<()> {
    if let Some(old) = versions::get(tx, &bucket.id, key, None)? {
        versions::remove(tx, &bucket.id, key, old.sequence())?;
        if let Version::Object(object) = &old {
            discard_object(tx, bucket, object, files)?;
        }
    }
    Ok(())
}

/// Removes the parts of an object whose row is removed, and subtracts it from the account. The files are to be removed
/// after the commit.
pub(crate) fn discard_object(tx: &mut Tx<'_>, bucket: &Bucket, object: &Object, files: &mut Vec<FileId>) -> Result<()> {
    if let Body::Parts(content) = &object.body {
        discard_parts(tx, content, files)?;
    }
    internal::count_for_job(tx, &bucket.org, &object.key, -(object.size as i64))?;
    Ok(accounts::release_usage(tx, &bucket.org, object.size, 1)?)
}

/// Removes the parts of a content and returns their size in bytes.
pub(crate) fn discard_parts(tx: &mut Tx<'_>, content: &ContentId, files: &mut Vec<FileId>) -> Result<u64> {
    let all = parts::list(tx, content, 0, MAX_PARTS)?;
    parts::remove_all(tx, content)?;
    let bytes = all.iter().map(|part| part.size).sum();
    files.extend(all.into_iter().map(|part| part.file));
    Ok(bytes)
}
