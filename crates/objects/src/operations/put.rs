//! Putting an object: its bytes are received and synced to disk, and then one transaction makes them visible.

use tarn_base::tasks::run_to_completion;
use tarn_model::buckets::{Bucket, Versioning};
use tarn_model::ids::{ContentId, FileId, OrgId, VersionId};
use tarn_model::objects::{Body, Details, MAX_KEY_BYTES, Object, Part, Upload, Version};
use tarn_store::{Tx, accounts, limits, objects, parts, versions};

use crate::delete::{discard_null_version, discard_object};
use crate::files::{Intake, Pending, Received, ReceivedBody, Sums};
use crate::{Error, Objects, Result, UnmetCondition, buckets, internal};

/// The location of an object.
#[derive(Clone, Debug)]
pub struct ObjectLocation {
    /// The organization that owns the bucket.
    pub org: OrgId,
    pub bucket: String,
    pub key: String,
}

/// The condition of a put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// An object with this ETag must exist, or any object for `*`.
    pub if_match: Option<String>,
    /// No object may exist.
    pub if_absent: bool,
}

/// The version that was stored or deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoredVersion {
    /// The bucket keeps no versions.
    #[default]
    Unversioned,
    /// The version without an id, which S3 calls "null".
    Null,
    Id(VersionId),
}

impl StoredVersion {
    pub(crate) fn in_bucket(bucket: &Bucket, id: Option<VersionId>) -> Self {
        if bucket.versioning == Versioning::Off { StoredVersion::Unversioned } else { id.into() }
    }
}

impl From<Option<VersionId>> for StoredVersion {
    fn from(id: Option<VersionId>) -> Self {
        id.map_or(StoredVersion::Null, StoredVersion::Id)
    }
}

/// The result of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub version: StoredVersion,
    /// The ETag, without quotes.
    pub etag: String,
    pub modified: tarn_model::Time,
    pub size: u64,
}

/// An object that is not stored yet.
#[derive(Clone)]
pub(crate) struct NewObject {
    pub(crate) size: u64,
    pub(crate) etag: String,
    pub(crate) details: Details,
    pub(crate) body: Body,
    /// The parts to be inserted with it.
    pub(crate) parts: Vec<Part>,
}

/// What a body replaces, so that its space becomes free.
pub(crate) enum Replaced<'a> {
    Object,
    /// The part with this number.
    Part(&'a Upload, u32),
}

impl Replaced<'_> {
    /// Returns how many bytes the replacement frees at most. The transaction that stores the body decides how many it
    /// really frees.
    fn freed_bytes(&self, tx: &mut Tx<'_>, location: &ObjectLocation) -> Result<u64> {
        if let Replaced::Part(upload, number) = self {
            return Ok(parts::get(tx, &upload.id, *number)?.map_or(0, |part| part.size));
        }
        let bucket = buckets::find(tx, &location.org, &location.bucket)?;
        if bucket.versioning == Versioning::Enabled {
            return Ok(0);
        }
        let current = objects::get(tx, &bucket.id, &location.key)?.map_or(0, |object| object.size);
        let null = match versions::get(tx, &bucket.id, &location.key, None)? {
            Some(Version::Object(object)) => object.size,
            Some(Version::Marker(_)) | None => 0,
        };
        Ok(current + null)
    }
}

impl Objects {
    /// Starts to receive the body of an object. A body that cannot be stored is refused before the client sends it.
    pub async fn intake(&self, location: &ObjectLocation, declared: Option<u64>, sums: Sums) -> Result<Intake> {
        check_key(&location.key)?;
        self.check_room(location, &Replaced::Object, declared).await?;
        Ok(self.files().intake(sums))
    }

    /// Refuses a body that exceeds the organization's quota or the free space of the disk.
    pub(crate) async fn check_room(
        &self,
        location: &ObjectLocation,
        replaced: &Replaced<'_>,
        declared: Option<u64>,
    ) -> Result<()> {
        let wanted = declared.unwrap_or(0);
        let configured = self.quota_bytes(&location.org);
        let read = self.store().read(|tx| {
            let Some(quota) = limits::object_bytes(tx, location.org.as_str())?.or(configured) else { return Ok(()) };
            let used = crate::accounts::get(tx, &location.org)?.bytes;
            let fits = |used: u64| tarn_model::limits::fits(quota, used, wanted);
            if fits(used) || fits(used.saturating_sub(replaced.freed_bytes(tx, location)?)) {
                Ok(())
            } else {
                Err(Error::QuotaExceeded { quota, used, asked: wanted })
            }
        });
        read.await?;
        let free = match declared {
            // Small bodies are frequent and cannot fill a disk within the age of the cached value.
            Some(size) if size <= crate::files::INLINE_MAX as u64 => {
                self.files().recent_free_bytes(self.clock().now())?
            }
            _ => self.files().free_bytes()?,
        };
        if free < wanted.saturating_add(self.settings().reserve_bytes) { Err(Error::Full) } else { Ok(()) }
    }

    /// Stores a received body as an object.
    pub async fn put(
        &self,
        location: &ObjectLocation,
        received: Received,
        details: Details,
        condition: Condition,
    ) -> Result<Stored> {
        check_key(&location.key)?;
        let (object, pending) = self.new_object(received, details);
        self.store_object(location, object, pending, condition).await
    }

    /// Converts a received body into a new object, and its pending file if it has one.
    pub(crate) fn new_object(&self, received: Received, details: Details) -> (NewObject, Vec<Pending>) {
        let etag = hex::encode(received.md5.unwrap_or_default());
        let (size, now) = (received.size, self.clock().now());
        let (body, parts, pending) = match received.body {
            ReceivedBody::Inline(data) => (Body::Inline(data), Vec::new(), None),
            ReceivedBody::File(pending) => {
                let content = ContentId::fresh(self.ids());
                let (file, etag) = (pending.id().clone(), etag.clone());
                let part =
                    Part { content: content.clone(), number: 1, file, size, etag, checksum: None, modified: now };
                (Body::Parts(content), vec![part], Some(pending))
            }
        };
        (NewObject { size, etag, details, body, parts }, pending.into_iter().collect())
    }

    /// Stores an object in one transaction. Its files are kept, and those of the replaced object are removed.
    pub(crate) async fn store_object(
        &self,
        location: &ObjectLocation,
        object: NewObject,
        pending: Vec<Pending>,
        condition: Condition,
    ) -> Result<Stored> {
        let (objects, location) = (self.clone(), location.clone());
        let work = async move {
            let (stored, files) =
                commit_with_files(pending, objects.commit_object(location, object, condition), Error::is_refusal)
                    .await?;
            objects.remove_files(files).await;
            Ok(stored)
        };
        run_to_completion(work).await
    }

    async fn commit_object(
        &self,
        location: ObjectLocation,
        object: NewObject,
        condition: Condition,
    ) -> Result<(Stored, Vec<FileId>)> {
        let quota = self.quota_bytes(&location.org);
        let write = self.write(move |tx| insert_object(tx, &location, &object, &condition, quota));
        write.await
    }
}

/// Stores an object within a transaction. Returns the files of the replaced object as well.
pub(crate) fn insert_object(
    tx: &mut Tx<'_>,
    location: &ObjectLocation,
    object: &NewObject,
    condition: &Condition,
    quota: Option<u64>,
) -> Result<(Stored, Vec<FileId>)> {
    let bucket = buckets::find(tx, &location.org, &location.bucket)?;
    for part in &object.parts {
        parts::insert(tx, part)?;
    }
    let mut files = Vec::new();
    let stored = replace_object(tx, &bucket, &location.key, object.clone(), condition, &mut files)?;
    charge_account(tx, &bucket.org, stored.size as i64, 1, quota)?;
    internal::count_for_job(tx, &bucket.org, &location.key, stored.size as i64)?;
    Ok((stored, files))
}

/// Runs a transaction that refers to pending files. They are removed only if it was certainly rolled back: a
/// transaction with an unknown outcome may have been committed, and then the files hold the object.
pub(crate) async fn commit_with_files<T, E>(
    mut pending: Vec<Pending>,
    write: impl Future<Output = std::result::Result<T, E>>,
    is_refusal: impl Fn(&E) -> bool,
) -> std::result::Result<T, E> {
    pending.iter_mut().for_each(Pending::leave_to_sweep);
    let written = write.await;
    match &written {
        Ok(_) => pending.into_iter().for_each(Pending::keep),
        Err(error) if is_refusal(error) => pending.into_iter().for_each(Pending::discard),
        Err(_) => drop(pending),
    }
    written
}

/// Makes an object the current one of its key. The previous object is removed or becomes an old version.
pub(crate) fn replace_object(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    key: &str,
    object: NewObject,
    condition: &Condition,
    files: &mut Vec<FileId>,
) -> Result<Stored> {
    let current = objects::get(tx, &bucket.id, key)?;
    check_condition(condition, current.as_ref())?;
    let version = match bucket.versioning {
        Versioning::Enabled => Some(VersionId::fresh(tx.ids())),
        Versioning::Off | Versioning::Suspended => None,
    };
    let sequence = next_sequence(tx, bucket, key, current.as_ref())?;
    match current {
        Some(old) if bucket.versioning == Versioning::Off || (version.is_none() && old.version.is_none()) => {
            discard_object(tx, bucket, &old, files)?;
        }
        Some(old) => versions::insert(tx, &Version::Object(old))?,
        None => {}
    }
    if bucket.versioning == Versioning::Suspended {
        discard_null_version(tx, bucket, key, files)?;
    }
    let NewObject { size, etag, details, body, parts: _ } = object;
    let (id, modified) = (bucket.id.clone(), tx.now());
    let object = Object { bucket: id, key: key.to_owned(), version, sequence, modified, size, etag, details, body };
    objects::put(tx, &object)?;
    let version = StoredVersion::in_bucket(bucket, object.version);
    Ok(Stored { version, etag: object.etag, modified, size })
}

/// Returns a number that is higher than that of every version of a key: the time, or one more than the last number when
/// clocks differ.
pub(crate) fn next_sequence(tx: &mut Tx<'_>, bucket: &Bucket, key: &str, current: Option<&Object>) -> Result<i64> {
    let mut last = current.map_or(0, |object| object.sequence);
    if bucket.versioning != Versioning::Off
        && let Some(newest) = versions::newest(tx, &bucket.id, key)?
    {
        last = last.max(newest.sequence());
    }
    Ok(tx.now().as_micros().max(last + 1))
}

/// Charges the account, unless it is closed or exceeds its quota: the organization's own or the configured one.
pub(crate) fn charge_account(
    tx: &mut Tx<'_>,
    org: &OrgId,
    bytes: i64,
    objects: i64,
    configured: Option<u64>,
) -> Result<()> {
    let quota = if bytes > 0 { limits::object_bytes(tx, org.as_str())?.or(configured) } else { None };
    let total = accounts::charge(tx, org, bytes, objects)?.ok_or(Error::NotEnabled)?;
    let asked = u64::try_from(bytes).unwrap_or_default();
    let used = total.saturating_sub(asked);
    match quota {
        Some(quota) if !tarn_model::limits::fits(quota, used, asked) => {
            Err(Error::QuotaExceeded { quota, used, asked })
        }
        _ => Ok(()),
    }
}

fn check_condition(condition: &Condition, current: Option<&Object>) -> Result<()> {
    if condition.if_absent && current.is_some() {
        return Err(Error::PreconditionFailed(UnmetCondition::Absent));
    }
    match (&condition.if_match, current) {
        (Some(_), None) => Err(Error::NoSuchKey),
        (Some(etag), Some(object)) if etag != "*" && *etag != object.etag => {
            Err(Error::PreconditionFailed(UnmetCondition::Match))
        }
        _ => Ok(()),
    }
}

/// Checks the key of an object. It is a name and never a path: `..` and slashes have no meaning.
pub(crate) fn check_key(key: &str) -> Result<()> {
    match key.len() {
        0 => Err(Error::BadKey),
        _ if key.contains('\0') => Err(Error::BadKey),
        1..=MAX_KEY_BYTES => Ok(()),
        _ => Err(Error::KeyTooLong),
    }
}
