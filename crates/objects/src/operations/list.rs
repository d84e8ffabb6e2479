//! Listing keys in byte order, page by page. Keys behind a delimiter are skipped without being read.

use tarn_model::ids::{BucketId, OrgId};
use tarn_model::objects::ListedObject;
use tarn_store::{Tx, objects};

use crate::{Objects, Result, buckets};

/// The maximum number of entries of a page.
pub const MAX_PAGE: u32 = 1000;

/// Which keys to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Lists only keys with this prefix.
    pub prefix: String,
    /// Keys that are equal up to this delimiter, after the prefix, become one entry.
    pub delimiter: Option<String>,
    /// Lists only entries after this one.
    pub after: Option<String>,
    /// The number of entries, at most [`MAX_PAGE`].
    pub limit: u32,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub entries: Vec<Entry<T>>,
    /// Whether there are more entries after the last one.
    pub more: bool,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<T> {
    /// A key.
    Item(T),
    /// All keys with this common prefix.
    Prefix(String),
}

impl Objects {
    /// Lists the objects of a bucket.
    pub async fn list(&self, org: &OrgId, bucket: &str, query: &Query) -> Result<Page<ListedObject>> {
        let read = self.store().read(|tx| {
            let bucket = buckets::find(tx, org, bucket)?;
            list_keys(tx, &bucket.id, query)
        });
        read.await
    }
}

fn list_keys(tx: &mut Tx<'_>, bucket: &BucketId, query: &Query) -> Result<Page<ListedObject>> {
    let start = query.after.as_deref().map(|after| query.start_after(after));
    let source =
        |tx: &mut Tx<'_>, from: &str, until: Option<&str>, limit| Ok(objects::list(tx, bucket, from, until, limit)?);
    build_page(tx, query, start.unwrap_or_else(|| Some(query.prefix.clone())), Vec::new(), source, |listed| &listed.key)
}

impl Query {
    /// Returns where to continue after an entry; `None` is the end. After a common prefix, all of its keys are skipped.
    pub(crate) fn start_after(&self, after: &str) -> Option<String> {
        match self.common_prefix(after) {
            Some(prefix) if prefix == after => successor(after),
            _ => Some(key_after(after)),
        }
        .map(|start| start.max(self.prefix.clone()))
    }

    /// Returns the common prefix under which a key is listed, if any.
    pub(crate) fn common_prefix<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
        let rest = key.strip_prefix(self.prefix.as_str())?;
        let at = rest.find(delimiter)?;
        key.get(..self.prefix.len() + at + delimiter.len())
    }
}

/// Returns the smallest text that is greater than a key. Keys have no NUL.
pub(crate) fn key_after(key: &str) -> String {
    format!("{key}{SMALLEST_CHARACTER}")
}

/// Builds a page from the rows of a source, which are in the order of their keys. `first` are rows that come before
/// those of the source.
pub(crate) fn build_page<T>(
    tx: &mut Tx<'_>,
    query: &Query,
    start: Option<String>,
    first: Vec<T>,
    source: impl Fn(&mut Tx<'_>, &str, Option<&str>, u32) -> Result<Vec<T>>,
    key: impl Fn(&T) -> &str,
) -> Result<Page<T>> {
    let mut page = Page { entries: Vec::new(), more: false };
    let until = successor(&query.prefix).filter(|_| !query.prefix.is_empty());
    let limit = query.limit.min(MAX_PAGE);
    if limit == 0 {
        return Ok(page);
    }
    let mut rows = first.into_iter();
    let mut from = start;
    // Whether the last batch was the last one of the source.
    let mut last_was_short = false;
    let mut batch = if query.delimiter.is_some() { FIRST_BATCH } else { MAX_PAGE + 1 };
    loop {
        for row in rows.by_ref() {
            let prefix = query.common_prefix(key(&row)).map(str::to_owned);
            if let (Some(prefix), Some(Entry::Prefix(last))) = (&prefix, page.entries.last())
                && prefix == last
            {
                continue;
            }
            if page.entries.len() as u32 == limit {
                page.more = true;
                return Ok(page);
            }
            match prefix {
                Some(prefix) => {
                    page.entries.push(Entry::Prefix(prefix));
                }
                None => page.entries.push(Entry::Item(row)),
            }
        }
        let Some(next) = from.take().filter(|_| !last_was_short) else {
            return Ok(page);
        };
        // One row more than fits shows whether there are more.
        let wanted = (limit - page.entries.len() as u32 + 1).min(batch);
        let found = source(tx, &next, until.as_deref(), wanted)?;
        last_was_short = (found.len() as u32) < wanted;
        from = match found.last() {
            Some(row) => match query.common_prefix(key(row)) {
                Some(prefix) => {
                    batch = FIRST_BATCH;
                    successor(prefix)
                }
                None => {
                    batch = batch.saturating_mul(2);
                    Some(format!("{}{SMALLEST_CHARACTER}", key(row)))
                }
            },
            None => None,
        };
        rows = found.into_iter();
    }
}

/// The first batch size where each row may stand for many keys that are skipped.
const FIRST_BATCH: u32 = 8;

/// The smallest character of a key: NUL is refused.
const SMALLEST_CHARACTER: char = '\u{1}';

/// Returns the smallest text that is greater than every text with this prefix; `None` when there is none.
pub(crate) fn successor(text: &str) -> Option<String> {
    let mut characters: Vec<char> = text.chars().collect();
    while let Some(last) = characters.pop() {
        let next = match last {
            // Surrogates are not part of any text.
            '\u{d7ff}' => Some('\u{e000}'),
            '\u{10ffff}' => None,
            other => char::from_u32(other as u32 + 1),
        };
        if let Some(next) = next {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The successor of a text follows exactly the texts with that prefix.
    #[test]
    fn successor_follows_all_with_prefix() {
        for (text, next) in [("a", "b"), ("a/", "a0"), ("\u{d7ff}", "\u{e000}"), ("a\u{10ffff}", "b"), ("é", "ê")] {
            assert_eq!(successor(text).as_deref(), Some(next));
            assert!(format!("{text}\u{10ffff}\u{10ffff}").as_str() < next);
        }
        assert_eq!(successor("\u{10ffff}"), None);
        assert_eq!(successor(""), None);
    }

    /// Common prefixes end with the delimiter.
    #[test]
    fn common_prefixes_end_with_delimiter() {
        let query = Query { prefix: "a/".to_owned(), delimiter: Some("/".to_owned()), ..Query::default() };
        assert_eq!(query.common_prefix("a/b/c"), Some("a/b/"));
        assert_eq!(query.common_prefix("a/b"), None);
        assert_eq!(query.common_prefix("a//"), Some("a//"));
        assert_eq!(query.start_after("a/b/"), Some("a/b0".to_owned()));
        assert_eq!(query.start_after("a/b"), Some("a/b\u{1}".to_owned()));
        assert_eq!(query.start_after("A"), Some("a/".to_owned()));
    }
}
