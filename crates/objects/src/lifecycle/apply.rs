//! Deletes what is due, in the transaction that reads the rules.

use tarn_model::Time;
use tarn_model::buckets::Bucket;
use tarn_model::ids::{BucketId, ContentId, FileId};
use tarn_model::object_rules::{MAX_KEPT, ObjectRule, next_midnight};
use tarn_model::objects::Version;
use tarn_store::bucket_settings::{self, SettingKind};
use tarn_store::{Tx, accounts, buckets, clock, lifecycle_passes, objects, uploads, versions};

use super::{Candidate, LifecyclePage};
use crate::delete::{delete_current, delete_stored_version};
use crate::upkeep::BATCH;
use crate::uploads::remove_upload;
use crate::{Error, Result};

/// Applies the rules of a bucket to a page, and stores where its pass continues. Returns how many rows were removed.
pub(super) fn apply_page(tx: &mut Tx<'_>, id: &BucketId, page: &LifecyclePage) -> Result<(u64, Vec<FileId>)> {
    let (mut removed, mut files) = (0, Vec::new());
    // The rules were set again, or another replica was faster.
    if lifecycle_passes::position(tx, id)?.as_deref() != Some(&page.from) {
        return Ok((removed, files));
    }
    let rules: Option<Vec<ObjectRule>> = bucket_settings::get(tx, id, SettingKind::Lifecycle)?;
    let (Some(bucket), Some(rules)) = (buckets::get(tx, id)?, rules) else {
        lifecycle_passes::remove(tx, id)?;
        return Ok((removed, files));
    };
    let now = tx.now();
    // A closed account is emptied by another task.
    let is_open = accounts::get(tx, &bucket.org)?.is_some_and(|account| !account.closing);
    let mut next = page.next.clone();
    for candidate in page.candidates.iter().filter(|_| is_open) {
        if files.len() >= BATCH as usize {
            break;
        }
        let is_removed = match candidate {
            Candidate::Object { key, sequence } => end_object(tx, &bucket, &rules, key, *sequence, &mut files)?,
            Candidate::Version { key, sequence } => end_version(tx, &bucket, &rules, key, *sequence, &mut files)?,
            Candidate::Upload { id, .. } => end_upload(tx, &bucket, &rules, id, &mut files)?,
        };
        removed += u64::from(is_removed);
        if files.len() >= BATCH as usize {
            next = Some(candidate.position());
        }
    }
    match next {
        None => lifecycle_passes::advance(tx, id, next_midnight(now), "")?,
        Some(next) => {
            let text = serde_json::to_string(&next)
                .map_err(|error| Error::Store(tarn_store::Error::Corrupt(error.to_string())))?;
            lifecycle_passes::advance(tx, id, now, &text)?;
        }
    }
    Ok((removed, files))
}

fn end_object(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    rules: &[ObjectRule],
    key: &str,
    sequence: i64,
    files: &mut Vec<FileId>,
) -> Result<bool> {
    let now = clock::calendar(tx)?;
    let Some(object) = objects::get(tx, &bucket.id, key)?.filter(|object| object.sequence == sequence) else {
        return Ok(false);
    };
    let ends = |rule: &ObjectRule| {
        rule.ends_object(key, object.size, object.modified, now) && rule.has_tags(&object.details.tags)
    };
    if !rules.iter().any(ends) {
        return Ok(false);
    }
    delete_current(tx, bucket, key, files)?;
    Ok(true)
}

fn end_version(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    rules: &[ObjectRule],
    key: &str,
    sequence: i64,
    files: &mut Vec<FileId>,
) -> Result<bool> {
    let now = clock::calendar(tx)?;
    let Some(version) = versions::at(tx, &bucket.id, key, sequence)? else {
        return Ok(false);
    };
    let is_due = match old_since(tx, bucket, key, sequence)? {
        Some((since, newer)) => {
            let (size, tags) = match &version {
                Version::Object(object) => (Some(object.size), object.details.tags.as_slice()),
                Version::Marker(_) => (None, &[][..]),
            };
            rules.iter().any(|rule| rule.ends_version(key, size, since, newer, now) && rule.has_tags(tags))
        }
        None => match &version {
            Version::Marker(marker) => {
                versions::list_of(tx, &bucket.id, key, sequence, 1)?.is_empty()
                    && rules.iter().any(|rule| rule.ends_lone_marker(key, marker.modified, now))
            }
            Version::Object(_) => false,
        },
    };
    if is_due {
        delete_stored_version(tx, bucket, key, version.id(), files)?;
    }
    Ok(is_due)
}

/// Returns since when a version is old, and how many old versions are newer; `None` when it is what the key shows.
fn old_since(tx: &mut Tx<'_>, bucket: &Bucket, key: &str, sequence: i64) -> Result<Option<(Time, u32)>> {
    // One more than a rule keeps, and one more that may be current.
    let newer = versions::newer(tx, &bucket.id, key, sequence, MAX_KEPT + 2)?;
    let count = u32::try_from(newer.len()).unwrap_or(u32::MAX);
    let current = objects::get(tx, &bucket.id, key)?;
    Ok(match (newer.first(), current) {
        (Some(since), Some(_)) => Some((*since, count)),
        (None, Some(current)) => Some((current.modified, 0)),
        // The newest is a delete marker, and current.
        (Some(since), None) => Some((*since, count - 1)),
        (None, None) => None,
    })
}

fn end_upload(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    rules: &[ObjectRule],
    id: &ContentId,
    files: &mut Vec<FileId>,
) -> Result<bool> {
    let now = clock::calendar(tx)?;
    let Some(upload) = uploads::get(tx, id)?.filter(|upload| upload.bucket == bucket.id) else {
        return Ok(false);
    };
    if !rules.iter().any(|rule| rule.ends_upload(&upload.key, upload.created, now)) {
        return Ok(false);
    }
    remove_upload(tx, &bucket.org, id, files)?;
    Ok(true)
}
