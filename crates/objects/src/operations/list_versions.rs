//! Listing all versions of all keys: ordered by key, and newest first within a key.

use tarn_model::ids::{BucketId, OrgId, VersionId};
use tarn_model::objects::ListedObject;
use tarn_store::{Tx, objects, versions};

use crate::list::{MAX_PAGE, Page, Query, build_page};
use crate::{Error, Objects, Result, buckets};

/// A version in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    pub listed: ListedObject,
    /// Whether it is the newest version of its key.
    pub latest: bool,
}

/// Where to continue within a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// After this version; `None` is "null".
    Version(Option<VersionId>),
    /// After the version with this number, which may have been deleted.
    Sequence(i64),
}

impl Objects {
    /// Lists the versions of a bucket. `within` continues within the key that `query.after` names.
    pub async fn list_versions(
        &self,
        org: &OrgId,
        bucket: &str,
        query: &Query,
        within: Option<After>,
    ) -> Result<Page<ListedVersion>> {
        let read = self.store().read(|tx| {
            let bucket = buckets::find(tx, org, bucket)?;
            list_bucket_versions(tx, &bucket.id, query, within)
        });
        read.await
    }
}

fn list_bucket_versions(
    tx: &mut Tx<'_>,
    bucket: &BucketId,
    query: &Query,
    within: Option<After>,
) -> Result<Page<ListedVersion>> {
    let (start, first) = match &query.after {
        None => (Some(query.prefix.clone()), Vec::new()),
        Some(key) => match within {
            None => (query.start_after(key), Vec::new()),
            Some(after) => (query.start_after(key), older_versions(tx, bucket, key, after, query.limit)?),
        },
    };
    let source =
        |tx: &mut Tx<'_>, from: &str, until: Option<&str>, limit: u32| merge_tables(tx, bucket, from, until, limit);
    build_page(tx, query, start, first, source, |version| &version.listed.key)
}

/// Returns the versions of one key after the given one.
fn older_versions(
    tx: &mut Tx<'_>,
    bucket: &BucketId,
    key: &str,
    after: After,
    limit: u32,
) -> Result<Vec<ListedVersion>> {
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

/// Merges the rows of both tables: the current object comes before the older versions of its key. The result holds all
/// versions of the last key, or more than fit on a page.
fn merge_tables(
    tx: &mut Tx<'_>,
    bucket: &BucketId,
    from: &str,
    until: Option<&str>,
    limit: u32,
) -> Result<Vec<ListedVersion>> {
    let mut current = objects::list(tx, bucket, from, until, limit)?.into_iter().peekable();
    let mut older = versions::list(tx, bucket, from, until, limit)?.into_iter().peekable();
    let mut merged: Vec<ListedVersion> = Vec::new();
    while merged.len() < limit as usize {
        let take_current = match (current.peek(), older.peek()) {
            (Some(current), Some(older)) => current.key <= older.key,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => break,
        };
        let next = if take_current { current.next() } else { older.next() };
        let Some(listed) = next else { break };
        let latest = merged.last().is_none_or(|last| last.listed.key != listed.key);
        merged.push(ListedVersion { listed, latest });
    }
    // The next batch starts with the next key, so no version of this key may be left out.
    if let Some(ListedObject { key, sequence, .. }) = merged.last().map(|last| last.listed.clone()) {
        let rest = versions::list_of(tx, bucket, &key, sequence, MAX_PAGE + 1)?;
        merged.extend(rest.into_iter().map(|listed| ListedVersion { listed, latest: false }));
    }
    Ok(merged)
}
