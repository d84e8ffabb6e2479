//! Times between the store, which counts microseconds, and S3, which writes them in words.

use std::time::{Duration, SystemTime};

use http::HeaderValue;
use s3s::dto::{Timestamp, TimestampFormat};
use tarn_model::Time;

/// A time as S3 takes it.
pub(in crate::s3) fn timestamp(time: Time) -> Timestamp {
    let since = Duration::from_micros(time.as_micros().unsigned_abs());
    Timestamp::from(if time.as_micros() < 0 { SystemTime::UNIX_EPOCH - since } else { SystemTime::UNIX_EPOCH + since })
}

/// A time without its fraction of a second, which headers cannot say.
pub(in crate::s3) fn whole(time: Time) -> Timestamp {
    timestamp(Time::from_micros(time.as_micros().div_euclid(1_000_000) * 1_000_000))
}

/// A time for a header.
pub(in crate::s3) fn http_date(time: Time) -> Option<HeaderValue> {
    let mut text = Vec::new();
    timestamp(time).format(TimestampFormat::HttpDate, &mut text).ok()?;
    HeaderValue::from_bytes(&text).ok()
}
