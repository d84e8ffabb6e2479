//! Reads a page of a bucket and finds what may be due. Tags are checked later, in the transaction that deletes.

use tarn_model::Time;
use tarn_model::ids::BucketId;
use tarn_model::object_rules::ObjectRule;
use tarn_store::bucket_settings::{self, SettingKind};
use tarn_store::{Tx, lifecycle_passes, objects, uploads, versions};

use super::{Candidate, LifecyclePage, Position};
use crate::Result;
use crate::list::{key_after, successor};

/// The maximum number of rows of a page.
const MAX_ROWS: u32 = 500;

/// The maximum number of candidates of a page: one transaction deletes them, and other writers wait for it.
const MAX_CANDIDATES: usize = 100;

/// Reads the next page of a bucket.
pub(super) fn read_page(tx: &mut Tx<'_>, bucket: &BucketId, now: Time) -> Result<LifecyclePage> {
    let from = lifecycle_passes::position(tx, bucket)?.unwrap_or_default();
    let rules: Vec<ObjectRule> = bucket_settings::get(tx, bucket, SettingKind::Lifecycle)?.unwrap_or_default();
    // Another text is not a position, and the pass begins.
    let position: Option<Position> = serde_json::from_str(&from).ok();
    let (rows, next_phase) = match &position {
        None => (object_rows(tx, bucket, &rules, None, now)?, Some(Position::Versions(None))),
        Some(Position::Objects(after)) => {
            (object_rows(tx, bucket, &rules, Some(after), now)?, Some(Position::Versions(None)))
        }
        Some(Position::Versions(after)) => {
            (version_rows(tx, bucket, &rules, after.as_ref(), now)?, Some(Position::Uploads(None)))
        }
        Some(Position::Uploads(after)) => (upload_rows(tx, bucket, &rules, after.as_ref(), now)?, None),
    };
    let is_complete = (rows.len() as u32) < MAX_ROWS;
    let (mut candidates, mut last) = (Vec::new(), None);
    for (row, may_be_due) in rows {
        last = Some(row.position());
        if may_be_due {
            candidates.push(row);
            if candidates.len() == MAX_CANDIDATES {
                return Ok(LifecyclePage { from, candidates, next: last });
            }
        }
    }
    Ok(LifecyclePage { from, candidates, next: if is_complete { next_phase } else { last } })
}

/// Rows, and whether each may be due.
type Rows = Vec<(Candidate, bool)>;

fn object_rows(
    tx: &mut Tx<'_>,
    bucket: &BucketId,
    rules: &[ObjectRule],
    after: Option<&String>,
    now: Time,
) -> Result<Rows> {
    let Some(range) = KeyRange::of(rules, |rule| rule.expiry.is_some()) else {
        return Ok(Vec::new());
    };
    let from = after.map_or_else(String::new, |after| key_after(after)).max(range.from);
    let listed = objects::list(tx, bucket, &from, range.until.as_deref(), MAX_ROWS)?;
    let rows = listed.into_iter().map(|listed| {
        let size = listed.object.as_ref().map_or(0, |(size, _)| *size);
        let may_be_due = rules.iter().any(|rule| rule.ends_object(&listed.key, size, listed.modified, now));
        (Candidate::Object { key: listed.key, sequence: listed.sequence }, may_be_due)
    });
    Ok(rows.collect())
}

/// A version is older than it is old: what was modified too recently is not due either.
fn version_rows(
    tx: &mut Tx<'_>,
    bucket: &BucketId,
    rules: &[ObjectRule],
    after: Option<&(String, i64)>,
    now: Time,
) -> Result<Rows> {
    let concerns =
        |rule: &ObjectRule| rule.old_versions.is_some() || rule.removes_lone_markers || rule.expiry.is_some();
    let Some(range) = KeyRange::of(rules, concerns) else {
        return Ok(Vec::new());
    };
    let mut listed = match after {
        Some((key, sequence)) => versions::list_of(tx, bucket, key, *sequence, MAX_ROWS)?,
        None => Vec::new(),
    };
    let left = MAX_ROWS - listed.len() as u32;
    if left > 0 {
        let from = after.map_or_else(String::new, |(key, _)| key_after(key)).max(range.from);
        listed.extend(versions::list(tx, bucket, &from, range.until.as_deref(), left)?);
    }
    let rows = listed.into_iter().map(|listed| {
        let size = listed.object.as_ref().map(|(size, _)| *size);
        let (key, modified) = (listed.key.as_str(), listed.modified);
        let may_be_due = rules.iter().any(|rule| {
            rule.ends_version(key, size, modified, u32::MAX, now)
                || (size.is_none() && rule.ends_lone_marker(key, modified, now))
        });
        (Candidate::Version { key: listed.key, sequence: listed.sequence }, may_be_due)
    });
    Ok(rows.collect())
}

fn upload_rows(
    tx: &mut Tx<'_>,
    bucket: &BucketId,
    rules: &[ObjectRule],
    after: Option<&(String, String)>,
    now: Time,
) -> Result<Rows> {
    let Some(range) = KeyRange::of(rules, |rule| rule.abort_days.is_some()) else {
        return Ok(Vec::new());
    };
    let mut listed = match after {
        Some((key, id)) => uploads::list_of(tx, bucket, key, id, MAX_ROWS)?,
        None => Vec::new(),
    };
    let left = MAX_ROWS - listed.len() as u32;
    if left > 0 {
        let from = after.map_or_else(String::new, |(key, _)| key_after(key)).max(range.from);
        listed.extend(uploads::list(tx, bucket, &from, range.until.as_deref(), left)?);
    }
    let rows = listed.into_iter().map(|upload| {
        let may_be_due = rules.iter().any(|rule| rule.ends_upload(&upload.key, upload.created, now));
        (Candidate::Upload { key: upload.key, id: upload.id }, may_be_due)
    });
    Ok(rows.collect())
}

/// The keys that rules can apply to: from the smallest of their prefixes to the last end of one.
struct KeyRange {
    from: String,
    until: Option<String>,
}

impl KeyRange {
    /// Returns the range of the enabled rules that a phase is concerned with; `None` without such rules.
    fn of(rules: &[ObjectRule], concerns: impl Fn(&ObjectRule) -> bool) -> Option<Self> {
        let prefixes = || rules.iter().filter(|rule| rule.enabled && concerns(rule)).map(|rule| rule.prefix.as_str());
        let from = prefixes().min()?.to_owned();
        // The keys of a prefix may end after those of a larger one that begins with it. Those of "" have no end.
        let ends: Option<Vec<String>> = prefixes().map(successor).collect();
        Some(KeyRange { from, until: ends.and_then(|ends| ends.into_iter().max()) })
    }
}
