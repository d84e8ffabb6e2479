//! The header `Range` with a single range. A malformed header is ignored, and so is a condition on the version of the
//! file: files have no entity tags.

use axum::http::{HeaderMap, header};
use tarn_control::jobs::outputs::ByteRange;

/// Returns the requested range, if there is exactly one.
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

    /// Only a single well-formed range is read.
    #[test]
    fn single_range_is_read() {
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
        assert_eq!(requested_range(&headers), None, "the whole file is always correct");
    }
}
