//! Looking up an object or one of its versions, and changing its tags.

use tarn_model::ids::{OrgId, VersionId};
use tarn_model::objects::{Object, Part, Version};
use tarn_store::{Tx, objects, parts, versions};

use crate::{Error, Objects, Result, accounts, buckets};

/// Selects a version of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VersionSelector {
    /// The current version.
    #[default]
    Current,
    /// The version with this id; `None` is "null".
    Version(Option<VersionId>),
}

impl Objects {
    /// Returns the object of a key.
    pub async fn find(&self, org: &OrgId, bucket: &str, key: &str, selector: &VersionSelector) -> Result<Object> {
        self.store().read(|tx| find_object(tx, org, bucket, key, selector)).await
    }

    /// Replaces the tags of an object. Returns the object with its version.
    pub async fn set_tags(
        &self,
        org: &OrgId,
        bucket: &str,
        key: &str,
        selector: &VersionSelector,
        tags: Vec<(String, String)>,
    ) -> Result<Object> {
        let (org, bucket, key, selector) = (org.clone(), bucket.to_owned(), key.to_owned(), selector.clone());
        let write = self.write(move |tx| -> Result<Object> {
            accounts::get(tx, &org)?;
            let mut object = find_object(tx, &org, &bucket, &key, &selector)?;
            object.details.tags = tags.clone();
            let is_current = objects::get(tx, &object.bucket, &key)?.is_some_and(|now| now.sequence == object.sequence);
            if is_current {
                objects::save_details(tx, &object)?
            } else {
                versions::save_details(tx, &object)?
            }
            Ok(object)
        });
        write.await
    }

    /// Returns the parts of an object after a number, in order.
    pub async fn parts_of(&self, object: &Object, after: u32, limit: u32) -> Result<Vec<Part>> {
        match &object.body {
            tarn_model::objects::Body::Inline(_) => Ok(Vec::new()),
            tarn_model::objects::Body::Parts(content) => {
                self.store().read(|tx| Ok(parts::list(tx, content, after, limit)?)).await
            }
        }
    }
}

/// Returns the object of a key. Whether the bucket or the key is missing is only checked when nothing was found.
pub(crate) fn find_object(
    tx: &mut Tx<'_>,
    org: &OrgId,
    bucket: &str,
    key: &str,
    selector: &VersionSelector,
) -> Result<Object> {
    if let Some(object) = objects::find(tx, org, bucket, key)?
        && match selector {
            VersionSelector::Current => true,
            VersionSelector::Version(version) => *version == object.version,
        }
    {
        return Ok(object);
    }
    let bucket = buckets::find(tx, org, bucket)?;
    match selector {
        VersionSelector::Current => match versions::newest(tx, &bucket.id, key)? {
            Some(Version::Marker(marker)) => Err(Error::KeyDeleted { marker: marker.version }),
            Some(Version::Object(_)) | None => Err(Error::NoSuchKey),
        },
        VersionSelector::Version(version) => match versions::get(tx, &bucket.id, key, version.as_ref())? {
            Some(Version::Object(object)) => Ok(object),
            Some(Version::Marker(marker)) => Err(Error::IsMarker { version: marker.version }),
            None => Err(Error::NoSuchVersion),
        },
    }
}
