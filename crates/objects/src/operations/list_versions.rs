//! Listing all versions of all keys: by key, and the newest first within a key.

use tarn_model::ids::{BucketId, OrgId, VersionId};
use tarn_model::objects::Listed;
use tarn_store::{Tx, objects, versions};

use crate::list::{MAX_PAGE, Page, Query, walk};
use crate::{Error, Objects, Result, buckets};

/// A version in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    /// What is known of it.
    pub listed: Listed,
    /// Whether it is the newest of its key.
    pub latest: bool,
}

/// Where to go on within a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// After this version; `None` is "null".
    Version(Option<VersionId>),
    /// After the version with this number, which may be gone by now.
    Sequence(i64),
}

impl Objects {
    /// Lists the versions of a bucket. `within` goes on within the key that `query.after` names.
    pub async fn list_versions(
        &self,
        org: &OrgId,
        bucket: &str,
        query: &Query,
        within: Option<After>,
    ) -> Result<Page<ListedVersion>> {
        let read = self.store().read(|tx| {
            let bucket = buckets::find(tx, org, bucket)?;
            list(tx, &bucket.id, query, within)
        });
        read.await
    }
}

fn list(tx: &mut Tx<'_>, bucket: &BucketId, query: &Query, within: Option<After>) -> Result<Page<ListedVersion>> {
    let (start, first) = match &query.after {
        None => (Some(query.prefix.clone()), Vec::new()),
        Some(key) => match within {
            None => (query.start_after(key), Vec::new()),
            Some(after) => (query.start_after(key), rest_of(tx, bucket, key, after, query.limit)?),
        },
    };
    let source = |tx: &mut Tx<'_>, from: &str, until: Option<&str>, limit: u32| both(tx, bucket, from, until, limit);
    walk(tx, query, start, first, source, |version| &version.listed.key)
}

/// The versions of one key that come after one of them.
fn rest_of(tx: &mut Tx<'_>, bucket: &BucketId, key: &str, after: After, limit: u32) -> Result<Vec<ListedVersion>> {
    let sequence = match after {
        After::Sequence(sequence) => sequence,
        After::Version(version) => match objects::get(tx, bucket, key)?.filter(|object| object.version == version) {
            Some(object) => object.sequence,
            None => versions::get(tx, bucket, key, version.as_ref())?.ok_or(Error::NoSuchVersion)?.sequence(),
        },
    };
    let rest = versions::list_of(tx, bucket, key, sequence, limit + 1)?;
    Ok(rest.into_iter().map(|listed| ListedVersion { listed, latest: false }).collect())
}

/// What both tables hold, merged: the one that is seen comes before the older ones of its key. All versions of the last key
/// are there, or more than a page holds.
fn both(tx: &mut Tx<'_>, bucket: &BucketId, from: &str, until: Option<&str>, limit: u32) -> Result<Vec<ListedVersion>> {
    let mut seen = objects::list(tx, bucket, from, until, limit)?.into_iter().peekable();
    let mut older = versions::list(tx, bucket, from, until, limit)?.into_iter().peekable();
    let mut merged: Vec<ListedVersion> = Vec::new();
    while merged.len() < limit as usize {
        let take_seen = match (seen.peek(), older.peek()) {
            (Some(seen), Some(older)) => seen.key <= older.key,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => break,
        };
        let next = if take_seen { seen.next() } else { older.next() };
        let Some(listed) = next else { break };
        let latest = merged.last().is_none_or(|last| last.listed.key != listed.key);
        merged.push(ListedVersion { listed, latest });
    }
    // Whoever goes on does so with the next key, so nothing of this one may be left.
    if let Some(Listed { key, sequence, .. }) = merged.last().map(|last| last.listed.clone()) {
        let rest = versions::list_of(tx, bucket, &key, sequence, MAX_PAGE + 1)?;
        merged.extend(rest.into_iter().map(|listed| ListedVersion { listed, latest: false }));
    }
    Ok(merged)
}
