//! The validity of a certificate: a minimal DER reader that steps over the fields before it.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tarn_model::Time;

/// The tags of fields.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const SHORT_YEAR: u8 = 0x17;
const LONG_YEAR: u8 = 0x18;

/// The start and the end of the validity; `None` if the certificate cannot be parsed.
pub(in crate::doctor) fn validity_of(certificate: &[u8]) -> Option<(Time, Time)> {
    let (_, whole, _) = der_field(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, mut rest, _) = der_field(whole).filter(|(tag, ..)| *tag == SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = der_field(rest)?.2;
    }
    // Serial number, signature algorithm and issuer.
    for _ in 0..3 {
        rest = der_field(rest)?.2;
    }
    let (_, validity, _) = der_field(rest).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (tag, from, rest) = der_field(validity)?;
    let from = parse_der_time(tag, from)?;
    let (tag, until, _) = der_field(rest)?;
    Some((from, parse_der_time(tag, until)?))
}

/// Reads a field: its tag, its content, and the bytes after it.
fn der_field(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        ..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Parses `YYMMDDhhmmssZ`, or the same with a year of four digits.
fn parse_der_time(tag: u8, text: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        SHORT_YEAR => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        LONG_YEAR => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
    let date = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?, 0).ok()?;
    Some(Time::from_micros(date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_microsecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_year_formats_are_parsed() {
        let shown = |tag, text: &[u8]| parse_der_time(tag, text).map(|time| time.to_string());
        assert_eq!(shown(SHORT_YEAR, b"261116070000Z").as_deref(), Some("2026-11-16T07:00:00Z"));
        assert_eq!(shown(SHORT_YEAR, b"991231235959Z").as_deref(), Some("1999-12-31T23:59:59Z"));
        assert_eq!(shown(LONG_YEAR, b"20510101000000Z").as_deref(), Some("2051-01-01T00:00:00Z"));
        for (tag, wrong) in
            [(SHORT_YEAR, &b"2611160700Z"[..]), (LONG_YEAR, b"x"), (4, b"261116070000Z"), (SHORT_YEAR, b"\xff")]
        {
            assert_eq!(shown(tag, wrong), None);
        }
    }

    #[test]
    fn certificate_fields_are_skipped() {
        let wrap = |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).unwrap()], content].concat();
        let times = [wrap(SHORT_YEAR, b"260101000000Z"), wrap(LONG_YEAR, b"20560101000000Z")].concat();
        let fields = [
            wrap(VERSION, &[2, 1, 2]),
            wrap(2, &[7]),
            wrap(SEQUENCE, &[]),
            wrap(SEQUENCE, &[]),
            wrap(SEQUENCE, &times),
        ];
        let certificate = wrap(SEQUENCE, &wrap(SEQUENCE, &fields.concat()));
        let (from, until) = validity_of(&certificate).unwrap();
        assert_eq!(
            (from.to_string().as_str(), until.to_string().as_str()),
            ("2026-01-01T00:00:00Z", "2056-01-01T00:00:00Z")
        );
        for cut in 0..certificate.len() {
            assert_eq!(validity_of(&certificate[..cut]), None, "a part of one");
        }
        assert_eq!(validity_of(&[SEQUENCE, 0x85, 1, 1, 1, 1, 1]), None);
    }
}
