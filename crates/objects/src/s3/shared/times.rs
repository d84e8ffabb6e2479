//! Conversion of times between the store, in microseconds, and S3's formats.

use std::time::{Duration, SystemTime};

use http::HeaderValue;
use s3s::dto::{Timestamp, TimestampFormat};
use tarn_model::Time;

/// Converts a time to S3's type.
pub(in crate::s3) fn timestamp(time: Time) -> Timestamp {
    let since = Duration::from_micros(time.as_micros().unsigned_abs());
    Timestamp::from(if time.as_micros() < 0 { SystemTime::UNIX_EPOCH - since } else { SystemTime::UNIX_EPOCH + since })
}

/// Converts a time to whole seconds, because headers have no fractions.
pub(in crate::s3) fn whole_seconds(time: Time) -> Timestamp {
    timestamp(Time::from_micros(time.as_micros().div_euclid(1_000_000) * 1_000_000))
}

/// Returns the second of a time that a client sent, if it can be represented.
pub(in crate::s3) fn second(time: &Timestamp) -> Option<i64> {
    let mut text = Vec::new();
    time.format(TimestampFormat::EpochSeconds, &mut text).ok()?;
    let text = String::from_utf8(text).ok()?;
    text.split('.').next()?.parse().ok()
}

/// Formats a time for a header.
pub(in crate::s3) fn http_date(time: Time) -> Option<HeaderValue> {
    let mut text = Vec::new();
    timestamp(time).format(TimestampFormat::HttpDate, &mut text).ok()?;
    HeaderValue::from_bytes(&text).ok()
}
