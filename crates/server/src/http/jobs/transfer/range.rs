//! The header `Range`, as far as it asks for one piece of a file. What it does not say clearly counts as not said, and so does
//! what depends on the file being the same as before: files have no marks by which that could be seen.

use axum::http::{HeaderMap, header};
use tarn_control::jobs::outputs::ByteRange;

/// The one range that is asked for, if there is one.
pub(super) fn requested_range(headers: &HeaderMap) -> Option<ByteRange> {
    if headers.contains_key(header::IF_RANGE) {
        return None;
    }
    let text = headers.get(header::RANGE)?.to_str().ok()?;
    let (unit, range) = text.split_once('=')?;
    let (first, last) = range.trim().split_once('-').filter(|_| unit.trim().eq_ignore_ascii_case("bytes"))?;
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match (first, last) {
        ("", count) => Some(ByteRange::Last(number(count)?)),
        (first, "") => Some(ByteRange::From(number(first)?)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(ByteRange::Within(first, last))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn one_clear_range_counts() {
        let cases = [
            ("bytes=0-4", Some(ByteRange::Within(0, 4))),
            ("Bytes=7-", Some(ByteRange::From(7))),
            ("bytes=-3", Some(ByteRange::Last(3))),
            ("bytes=4-0", None),
            ("bytes=0-1,3-4", None),
            ("bytes=-", None),
            ("bytes=a-b", None),
            ("bytes=+1-2", None),
            ("lines=0-4", None),
            ("bytes=99999999999999999999-", None),
            ("bytes", None),
        ];
        for (text, expected) in cases {
            let headers = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(text))]);
            assert_eq!(requested_range(&headers), expected, "{text}");
        }
        assert_eq!(requested_range(&HeaderMap::new()), None);
        let mut headers = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static("bytes=0-4"))]);
        headers.insert(header::IF_RANGE, HeaderValue::from_static("\"mark\""));
        assert_eq!(requested_range(&headers), None, "then all of it is right in any case");
    }
}
