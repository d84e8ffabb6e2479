//! Putting: bytes come in, are on disk, and only then one transaction makes them visible.

use tarn_model::buckets::{Bucket, Versioning};
use tarn_model::ids::{ContentId, FileId, OrgId, VersionId};
use tarn_model::objects::{Body, Details, MAX_KEY_BYTES, Object, Part, Upload, Version};
use tarn_store::{Tx, accounts, limits, objects, parts, versions};

use crate::delete::{discard, discard_null};
use crate::files::{Intake, Pending, Received, Sums, Taken};
use crate::{Error, Objects, Result, buckets};

/// Where an object is to be.
#[derive(Clone, Debug)]
pub struct Place {
    /// In whose namespace.
    pub org: OrgId,
    /// In which bucket.
    pub bucket: String,
    /// Under which key.
    pub key: String,
}

/// What must be so for a put to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// There must be an object with this ETag, or with any for `*`.
    pub if_match: Option<String>,
    /// There must be no object.
    pub if_absent: bool,
}

/// What was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The version it became; the inner `None` is "null". `None` where the bucket keeps no versions.
    pub version: Option<Option<VersionId>>,
    /// Its ETag, without quotes.
    pub etag: String,
    /// When it became visible.
    pub modified: tarn_model::Time,
    /// Its size.
    pub size: u64,
}

/// An object before it has its place.
#[derive(Clone)]
pub(crate) struct Arrival {
    pub(crate) size: u64,
    pub(crate) etag: String,
    pub(crate) details: Details,
    pub(crate) body: Body,
    /// Parts that come with it.
    pub(crate) parts: Vec<Part>,
}

/// What a body takes the place of, and so the room.
pub(crate) enum Replaced<'a> {
    /// The object of the same key.
    Object,
    /// The part of this number.
    Part(&'a Upload, u32),
}

impl Replaced<'_> {
    /// How many bytes will be free again at most. What really happens is decided by the transaction that puts the body there.
    fn bytes(&self, tx: &mut Tx<'_>, place: &Place) -> Result<u64> {
        if let Replaced::Part(upload, number) = self {
            return Ok(parts::get(tx, &upload.id, *number)?.map_or(0, |part| part.size));
        }
        let bucket = buckets::find(tx, &place.org, &place.bucket)?;
        if bucket.versioning == Versioning::Enabled {
            return Ok(0);
        }
        let current = objects::get(tx, &bucket.id, &place.key)?.map_or(0, |object| object.size);
        let null = match versions::get(tx, &bucket.id, &place.key, None)? {
            Some(Version::Object(object)) => object.size,
            Some(Version::Marker(_)) | None => 0,
        };
        Ok(current + null)
    }
}

impl Objects {
    /// Begins to take in the body of an object. What cannot be kept is refused before it was sent.
    pub async fn intake(&self, place: &Place, declared: Option<u64>, sums: Sums) -> Result<Intake> {
        check_key(&place.key)?;
        self.make_room(place, &Replaced::Object, declared).await?;
        Ok(self.files().intake(sums))
    }

    /// Refuses what will not fit: too large for the organization's quota, or for the disk.
    pub(crate) async fn make_room(&self, place: &Place, replaced: &Replaced<'_>, declared: Option<u64>) -> Result<()> {
        let wanted = declared.unwrap_or(0);
        let configured = self.quota_bytes(&place.org);
        let read = self.store().read(|tx| {
            let Some(quota) = limits::object_bytes(tx, place.org.as_str())?.or(configured) else { return Ok(()) };
            let used = crate::accounts::get(tx, &place.org)?.bytes;
            let fits = |used: u64| tarn_model::limits::fits(quota, used, wanted);
            match fits(used) || fits(used.saturating_sub(replaced.bytes(tx, place)?)) {
                true => Ok(()),
                false => Err(Error::QuotaExceeded { quota, used, asked: wanted }),
            }
        });
        read.await?;
        let free = match declared {
            // Small ones come often, and cannot fill a disk between two looks.
            Some(size) if size <= crate::files::INLINE_MAX as u64 => {
                self.files().lately_free_bytes(self.clock().now())?
            }
            _ => self.files().free_bytes()?,
        };
        match free < wanted.saturating_add(self.settings().reserve_bytes) {
            true => Err(Error::Full),
            false => Ok(()),
        }
    }

    /// Makes a body that was taken in visible.
    pub async fn put(
        &self,
        place: &Place,
        received: Received,
        details: Details,
        condition: Condition,
    ) -> Result<Stored> {
        check_key(&place.key)?;
        let (arrival, pending) = self.arrival(received, details);
        self.arrive(place, arrival, pending, condition).await
    }

    /// What a body that was taken in will be, and its file if it has one.
    pub(crate) fn arrival(&self, received: Received, details: Details) -> (Arrival, Vec<Pending>) {
        let etag = hexadecimal(&received.md5.unwrap_or_default());
        let (size, now) = (received.size, self.clock().now());
        let (body, parts, pending) = match received.body {
            Taken::Inline(data) => (Body::Inline(data), Vec::new(), None),
            Taken::File(pending) => {
                let content = ContentId::fresh(self.ids());
                let (file, etag) = (pending.id().clone(), etag.clone());
                let part =
                    Part { content: content.clone(), number: 1, file, size, etag, checksum: None, modified: now };
                (Body::Parts(content), vec![part], Some(pending))
            }
        };
        (Arrival { size, etag, details, body, parts }, pending.into_iter().collect())
    }

    /// Gives an object its place in one transaction. Its files are kept, and those of what was there are removed.
    pub(crate) async fn arrive(
        &self,
        place: &Place,
        arrival: Arrival,
        pending: Vec<Pending>,
        condition: Condition,
    ) -> Result<Stored> {
        let (objects, place) = (self.clone(), place.clone());
        let work = async move {
            let (stored, files) = naming(pending, objects.commit(place, arrival, condition), Error::is_refusal).await?;
            objects.remove_files(files).await;
            Ok(stored)
        };
        self.to_the_end(work).await
    }

    async fn commit(&self, place: Place, arrival: Arrival, condition: Condition) -> Result<(Stored, Vec<FileId>)> {
        let quota = self.quota_bytes(&place.org);
        let write = self.store().write(move |tx| enter(tx, &place, &arrival, &condition, quota));
        write.await
    }
}

/// Gives an object its place within a transaction. Also returns the files of what was there.
pub(crate) fn enter(
    tx: &mut Tx<'_>,
    place: &Place,
    arrival: &Arrival,
    condition: &Condition,
    quota: Option<u64>,
) -> Result<(Stored, Vec<FileId>)> {
    let bucket = buckets::find(tx, &place.org, &place.bucket)?;
    for part in &arrival.parts {
        parts::insert(tx, part)?;
    }
    let mut files = Vec::new();
    let stored = settle(tx, &bucket, &place.key, arrival.clone(), condition, &mut files)?;
    charge(tx, &bucket.org, stored.size as i64, 1, quota)?;
    Ok((stored, files))
}

/// Carries out a transaction that names files. They are removed only if it was taken back for certain: one whose outcome
/// nobody knows may have been committed, and then the files are all that there is of an object.
pub(crate) async fn naming<T, E>(
    mut pending: Vec<Pending>,
    write: impl Future<Output = std::result::Result<T, E>>,
    is_refusal: impl Fn(&E) -> bool,
) -> std::result::Result<T, E> {
    pending.iter_mut().for_each(Pending::undecided);
    let written = write.await;
    match &written {
        Ok(_) => pending.into_iter().for_each(Pending::keep),
        Err(error) if is_refusal(error) => pending.into_iter().for_each(Pending::refused),
        Err(_) => drop(pending),
    }
    written
}

/// Puts an object into its place: what was there before is forgotten or becomes an old version.
pub(crate) fn settle(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    key: &str,
    arrival: Arrival,
    condition: &Condition,
    files: &mut Vec<FileId>,
) -> Result<Stored> {
    let current = objects::get(tx, &bucket.id, key)?;
    check(condition, current.as_ref())?;
    let version = match bucket.versioning {
        Versioning::Enabled => Some(VersionId::fresh(tx.ids())),
        Versioning::Off | Versioning::Suspended => None,
    };
    let sequence = next_sequence(tx, bucket, key, current.as_ref())?;
    match current {
        Some(old) if bucket.versioning == Versioning::Off || (version.is_none() && old.version.is_none()) => {
            discard(tx, bucket, &old, files)?;
        }
        Some(old) => versions::insert(tx, &Version::Object(old))?,
        None => {}
    }
    if bucket.versioning == Versioning::Suspended {
        discard_null(tx, bucket, key, files)?;
    }
    let Arrival { size, etag, details, body, parts: _ } = arrival;
    let (id, modified) = (bucket.id.clone(), tx.now());
    let object = Object { bucket: id, key: key.to_owned(), version, sequence, modified, size, etag, details, body };
    objects::put(tx, &object)?;
    let version = (bucket.versioning != Versioning::Off).then_some(object.version);
    Ok(Stored { version, etag: object.etag, modified, size })
}

/// A number that is higher than that of every version of a key: the time, or one more than the last where clocks go wrong.
pub(crate) fn next_sequence(tx: &mut Tx<'_>, bucket: &Bucket, key: &str, current: Option<&Object>) -> Result<i64> {
    let mut last = current.map_or(0, |object| object.sequence);
    if bucket.versioning != Versioning::Off
        && let Some(newest) = versions::newest(tx, &bucket.id, key)?
    {
        last = last.max(newest.sequence());
    }
    Ok(tx.now().as_micros().max(last + 1))
}

/// Adds to the account, if it was not given up and the quota allows it: the organization's own, or the configured one.
pub(crate) fn charge(tx: &mut Tx<'_>, org: &OrgId, bytes: i64, objects: i64, configured: Option<u64>) -> Result<()> {
    let quota = match bytes > 0 {
        true => limits::object_bytes(tx, org.as_str())?.or(configured),
        false => None,
    };
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

fn check(condition: &Condition, current: Option<&Object>) -> Result<()> {
    if condition.if_absent && current.is_some() {
        return Err(Error::PreconditionFailed);
    }
    match (&condition.if_match, current) {
        (Some(_), None) => Err(Error::NoSuchKey { marker: None }),
        (Some(etag), Some(object)) if etag != "*" && *etag != object.etag => Err(Error::PreconditionFailed),
        _ => Ok(()),
    }
}

/// Whether an object may have this key. It is a name and never a path: `..` and slashes mean nothing.
pub(crate) fn check_key(key: &str) -> Result<()> {
    match key.len() {
        0 => Err(Error::BadKey),
        _ if key.contains('\0') => Err(Error::BadKey),
        1..=MAX_KEY_BYTES => Ok(()),
        _ => Err(Error::KeyTooLong),
    }
}

/// Bytes as lower-case hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}
