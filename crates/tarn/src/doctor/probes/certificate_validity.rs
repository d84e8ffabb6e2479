//! The validity of a certificate.

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode as _, Tag, Tagged as _};
use tarn_model::Time;

/// The start and the end of the validity; `None` if the certificate cannot be parsed.
pub(in crate::doctor) fn validity_of(certificate: &[u8]) -> Option<(Time, Time)> {
    let certificate: Vec<AnyRef<'_>> = Vec::from_der(certificate).ok()?;
    let fields: Vec<AnyRef<'_>> = certificate.first()?.decode_as().ok()?;
    // Before it are the version, which may be absent, the serial number, the signature algorithm and the issuer.
    let at = if fields.first()?.tag().is_context_specific() { 4 } else { 3 };
    let times: Vec<AnyRef<'_>> = fields.get(at)?.decode_as().ok()?;
    let [from, until] = times[..] else { return None };
    Some((time_of(from)?, time_of(until)?))
}

fn time_of(field: AnyRef<'_>) -> Option<Time> {
    let since_1970 = match field.tag() {
        Tag::UtcTime => field.decode_as::<UtcTime>().ok()?.to_unix_duration(),
        _ => field.decode_as::<GeneralizedTime>().ok()?.to_unix_duration(),
    };
    Some(Time::from_micros(i64::try_from(since_1970.as_micros()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tags of fields.
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    const SHORT_YEAR: u8 = 0x17;
    const LONG_YEAR: u8 = 0x18;

    fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(content.len()).unwrap()], content].concat()
    }

    #[test]
    fn both_year_formats_are_parsed() {
        let shown = |tag, text: &[u8]| {
            let field = wrap(tag, text);
            time_of(AnyRef::from_der(&field).unwrap()).map(|time| time.to_string())
        };
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
