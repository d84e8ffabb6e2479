//! Listing keys in byte order, page by page; what lies behind a delimiter is jumped over, not read.

use tarn_model::ids::{BucketId, OrgId};
use tarn_model::objects::Listed;
use tarn_store::{Tx, objects};

use crate::{Objects, Result, buckets};

/// How many entries a page has at most.
pub const MAX_PAGE: u32 = 1000;

/// Which keys are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only keys that begin so.
    pub prefix: String,
    /// Keys that are equal up to this text, behind the prefix, become one entry.
    pub delimiter: Option<String>,
    /// Only entries after this one.
    pub after: Option<String>,
    /// How many entries, at most [`MAX_PAGE`].
    pub limit: u32,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What was found.
    pub entries: Vec<Entry<T>>,
    /// Whether there is more after the last entry.
    pub more: bool,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<T> {
    /// A thing.
    Item(T),
    /// All keys that begin so.
    Prefix(String),
}

impl Objects {
    /// Lists the objects of a bucket.
    pub async fn list(&self, org: &OrgId, bucket: &str, query: &Query) -> Result<Page<Listed>> {
        let read = self.store().read(|tx| {
            let bucket = buckets::find(tx, org, bucket)?;
            list(tx, &bucket.id, query)
        });
        read.await
    }
}

fn list(tx: &mut Tx<'_>, bucket: &BucketId, query: &Query) -> Result<Page<Listed>> {
    let start = query.after.as_deref().map(|after| query.start_after(after));
    let source =
        |tx: &mut Tx<'_>, from: &str, until: Option<&str>, limit| Ok(objects::list(tx, bucket, from, until, limit)?);
    walk(tx, query, start.unwrap_or_else(|| Some(query.prefix.clone())), Vec::new(), source, |listed| &listed.key)
}

impl Query {
    /// Where to go on after an entry; `None` is the end. After a common prefix, nothing of it is wanted any more.
    pub(crate) fn start_after(&self, after: &str) -> Option<String> {
        match self.common_prefix(after) {
            Some(prefix) if prefix == after => successor(after),
            _ => Some(format!("{after}{FIRST}")),
        }
        .map(|start| start.max(self.prefix.clone()))
    }

    /// The common prefix under which a key is listed, if it is.
    pub(crate) fn common_prefix<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
        let rest = key.strip_prefix(self.prefix.as_str())?;
        let at = rest.find(delimiter)?;
        key.get(..self.prefix.len() + at + delimiter.len())
    }
}

/// Walks over rows that a source gives in the order of their keys, and makes a page of them. `first` are rows that come
/// before those of the source.
pub(crate) fn walk<T>(
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
    // Whether the last look gave all there was.
    let mut last_was_short = false;
    let mut look = if query.delimiter.is_some() { FIRST_LOOK } else { MAX_PAGE + 1 };
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
        // One more than there is room for tells whether there is more.
        let wanted = (limit - page.entries.len() as u32 + 1).min(look);
        let found = source(tx, &next, until.as_deref(), wanted)?;
        last_was_short = (found.len() as u32) < wanted;
        from = match found.last() {
            Some(row) => match query.common_prefix(key(row)) {
                Some(prefix) => {
                    look = FIRST_LOOK;
                    successor(prefix)
                }
                None => {
                    look = look.saturating_mul(2);
                    Some(format!("{}{FIRST}", key(row)))
                }
            },
            None => None,
        };
        rows = found.into_iter();
    }
}

/// How many rows are read at a time where each may stand for a thousand others that are jumped over.
const FIRST_LOOK: u32 = 8;

/// The smallest character that a key can have: NUL is refused.
const FIRST: char = '\u{1}';

/// The smallest text that is greater than everything that begins with this one; `None` when there is none.
pub(crate) fn successor(text: &str) -> Option<String> {
    let mut characters: Vec<char> = text.chars().collect();
    while let Some(last) = characters.pop() {
        let next = match last {
            // The range of surrogates is not part of any text.
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

    #[test]
    fn a_successor_is_behind_all_that_begins_so_and_nothing_else() {
        for (text, next) in [("a", "b"), ("a/", "a0"), ("\u{d7ff}", "\u{e000}"), ("a\u{10ffff}", "b"), ("é", "ê")] {
            assert_eq!(successor(text).as_deref(), Some(next));
            assert!(format!("{text}\u{10ffff}\u{10ffff}").as_str() < next);
        }
        assert_eq!(successor("\u{10ffff}"), None);
        assert_eq!(successor(""), None);
    }

    #[test]
    fn common_prefixes_end_with_the_delimiter() {
        let query = Query { prefix: "a/".to_owned(), delimiter: Some("/".to_owned()), ..Query::default() };
        assert_eq!(query.common_prefix("a/b/c"), Some("a/b/"));
        assert_eq!(query.common_prefix("a/b"), None);
        assert_eq!(query.common_prefix("a//"), Some("a//"));
        assert_eq!(query.start_after("a/b/"), Some("a/b0".to_owned()));
        assert_eq!(query.start_after("a/b"), Some("a/b\u{1}".to_owned()));
        assert_eq!(query.start_after("A"), Some("a/".to_owned()));
    }
}
