//! Finding an object, or one of its versions, and its tags.

use tarn_model::ids::{OrgId, VersionId};
use tarn_model::objects::{Object, Part, Version};
use tarn_store::{Tx, objects, parts, versions};

use crate::{Error, Objects, Result, accounts, buckets};

/// Which version of an object is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The one that is seen.
    #[default]
    Current,
    /// This one; `None` is "null".
    Version(Option<VersionId>),
}

impl Objects {
    /// The object of this key.
    pub async fn find(&self, org: &OrgId, bucket: &str, key: &str, which: &Which) -> Result<Object> {
        self.store().read(|tx| find(tx, org, bucket, key, which)).await
    }

    /// Replaces the tags of an object, and says which version that was.
    pub async fn set_tags(
        &self,
        org: &OrgId,
        bucket: &str,
        key: &str,
        which: &Which,
        tags: Vec<(String, String)>,
    ) -> Result<Object> {
        let (org, bucket, key, which) = (org.clone(), bucket.to_owned(), key.to_owned(), which.clone());
        let write = self.store().write(move |tx| -> Result<Object> {
            accounts::get(tx, &org)?;
            let mut object = find(tx, &org, &bucket, &key, &which)?;
            object.details.tags = tags.clone();
            let is_current = objects::get(tx, &object.bucket, &key)?.is_some_and(|now| now.sequence == object.sequence);
            match is_current {
                true => objects::save_details(tx, &object)?,
                false => versions::save_details(tx, &object)?,
            }
            Ok(object)
        });
        write.await
    }

    /// The parts in which an object came, in order, beginning after a number.
    pub async fn parts_of(&self, object: &Object, after: u32, limit: u32) -> Result<Vec<Part>> {
        match &object.body {
            tarn_model::objects::Body::Inline(_) => Ok(Vec::new()),
            tarn_model::objects::Body::Parts(content) => {
                self.store().read(|tx| Ok(parts::list(tx, content, after, limit)?)).await
            }
        }
    }
}

/// The object of this key. Whether the bucket or the key is missing is only asked when nothing was found.
pub(crate) fn find(tx: &mut Tx<'_>, org: &OrgId, bucket: &str, key: &str, which: &Which) -> Result<Object> {
    if let Some(object) = objects::find(tx, org, bucket, key)?
        && match which {
            Which::Current => true,
            Which::Version(version) => *version == object.version,
        }
    {
        return Ok(object);
    }
    let bucket = buckets::find(tx, org, bucket)?;
    match which {
        Which::Current => match versions::newest(tx, &bucket.id, key)? {
            Some(Version::Marker(marker)) => Err(Error::NoSuchKey { marker: Some(marker.version) }),
            Some(Version::Object(_)) | None => Err(Error::NoSuchKey { marker: None }),
        },
        Which::Version(version) => match versions::get(tx, &bucket.id, key, version.as_ref())? {
            Some(Version::Object(object)) => Ok(object),
            Some(Version::Marker(marker)) => Err(Error::IsMarker { version: marker.version }),
            None => Err(Error::NoSuchVersion),
        },
    }
}
