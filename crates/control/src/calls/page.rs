//! Pages of lists: newest first, continued by an opaque cursor.

use tarn_model::Time;

use crate::{Error, Result};

/// The part of a list that a caller requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Lists everything of the caller's organization, not only what the caller created.
    pub include_org: bool,
    /// Includes what has ended.
    pub all: bool,
    /// The maximum number of rows; 100 when absent, never more than 1,000.
    pub limit: Option<u32>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
}

/// One page of a list and the cursor of the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Pass this as `cursor` to continue; `None` on the last page.
    pub next_cursor: Option<String>,
}

/// The number of rows of a page when the caller does not set a limit.
pub const DEFAULT_LIMIT: u32 = 100;

/// The maximum number of rows of a page.
pub const MAX_LIMIT: u32 = 1000;

/// Returns the number of rows for a requested limit.
pub(crate) fn limit(asked: Option<u32>) -> Result<u32> {
    match asked.unwrap_or(DEFAULT_LIMIT) {
        0 => Err(Error::invalid("invalid_limit", "limit must be at least 1")),
        limit => Ok(limit.min(MAX_LIMIT)),
    }
}

/// Decodes a cursor: the time and id of the last row of the previous page. The id must have the prefix of the same
/// list.
pub(crate) fn decode_cursor(cursor: Option<&str>, prefix: &str) -> Result<Option<(Time, String)>> {
    let Some(text) = cursor else { return Ok(None) };
    let parsed = text.split_once('.').and_then(|(micros, id)| {
        let plain =
            id.len() <= 20 && id.starts_with(prefix) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        plain.then_some((Time::from_micros(i64::from_str_radix(micros, 16).ok()?), id.to_owned()))
    });
    match parsed {
        Some(cursor) => Ok(Some(cursor)),
        None => Err(Error::invalid("invalid_cursor", "the cursor is not valid; start again without it")),
    }
}

/// Makes a page of rows that were read with one row more than the limit.
pub(crate) fn cut<T>(mut items: Vec<T>, limit: u32, cursor_of: impl Fn(&T) -> (Time, String)) -> Page<T> {
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let last = items.last().filter(|_| more).map(cursor_of);
    Page { next_cursor: last.map(|(time, id)| format!("{:x}.{id}", time.as_micros())), items }
}
