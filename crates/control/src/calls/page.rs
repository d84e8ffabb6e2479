//! Pages of lists: newest first, continued by an opaque cursor.

use tarn_model::Time;

use crate::{Error, Result};

/// How a caller wants a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Everything of the caller's organization instead of what the caller created.
    pub include_org: bool,
    /// Also what has ended.
    pub all: bool,
    /// At most so many; 100 when absent, never more than 1,000.
    pub limit: Option<u32>,
    /// Where the previous page ended.
    pub cursor: Option<String>,
}

/// A part of a list and where the next part begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Give this as `cursor` to go on; `None` at the end.
    pub next_cursor: Option<String>,
}

/// How many rows a page has when the caller does not say.
pub const DEFAULT_LIMIT: u32 = 100;

/// How many rows a page has at most.
pub const MAX_LIMIT: u32 = 1000;

/// How many rows a caller gets who asks for so many.
pub(crate) fn limit(asked: Option<u32>) -> Result<u32> {
    match asked.unwrap_or(DEFAULT_LIMIT) {
        0 => Err(Error::invalid("invalid_limit", "limit must be at least 1")),
        limit => Ok(limit.min(MAX_LIMIT)),
    }
}

/// Reads a cursor: the time and id of the last row that was shown. It must be one of the same list: its id says which.
pub(crate) fn decode_cursor(cursor: Option<&str>, prefix: &str) -> Result<Option<(Time, String)>> {
    let Some(text) = cursor else { return Ok(None) };
    let parsed = text.split_once('.').and_then(|(micros, id)| {
        let plain = id.len() <= 20
            && id.starts_with(prefix)
            && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        plain.then_some((Time::from_micros(i64::from_str_radix(micros, 16).ok()?), id.to_owned()))
    });
    match parsed {
        Some(place) => Ok(Some(place)),
        None => Err(Error::invalid(
            "invalid_cursor",
            "the cursor is not valid; start again without it",
        )),
    }
}

/// Cuts a page out of rows that were read with one row too many.
pub(crate) fn cut<T>(mut items: Vec<T>, limit: u32, place: impl Fn(&T) -> (Time, String)) -> Page<T> {
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let last = items.last().filter(|_| more).map(place);
    Page { next_cursor: last.map(|(time, id)| format!("{:x}.{id}", time.as_micros())), items }
}
