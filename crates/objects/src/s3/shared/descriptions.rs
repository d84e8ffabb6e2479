//! What GET and HEAD say of an object beside its bytes.

use s3s::dto::{Metadata, Timestamp, TimestampFormat};
use tarn_model::objects::Details;

/// What an object is when nobody said it.
pub(in crate::s3) const UNKNOWN_TYPE: &str = "binary/octet-stream";

/// The headers that were kept, by their fields in an output.
#[derive(Default)]
pub(in crate::s3) struct Kept {
    pub(in crate::s3) content_type: Option<String>,
    pub(in crate::s3) cache_control: Option<String>,
    pub(in crate::s3) content_disposition: Option<String>,
    pub(in crate::s3) content_encoding: Option<String>,
    pub(in crate::s3) content_language: Option<String>,
    pub(in crate::s3) expires: Option<Timestamp>,
    pub(in crate::s3) website_redirect_location: Option<String>,
    pub(in crate::s3) metadata: Option<Metadata>,
}

impl Kept {
    /// Takes what was kept out of the details.
    pub(in crate::s3) fn of(details: &mut Details) -> Self {
        let mut kept = Kept::default();
        for (name, value) in std::mem::take(&mut details.headers) {
            match name.as_str() {
                "content-type" => kept.content_type = Some(value),
                "cache-control" => kept.cache_control = Some(value),
                "content-disposition" => kept.content_disposition = Some(value),
                "content-encoding" => kept.content_encoding = Some(value),
                "content-language" => kept.content_language = Some(value),
                "expires" => kept.expires = Timestamp::parse(TimestampFormat::HttpDate, &value).ok(),
                "x-amz-website-redirect-location" => kept.website_redirect_location = Some(value),
                // A later version may keep more than this one knows.
                _ => {}
            }
        }
        if !details.metadata.is_empty() {
            kept.metadata = Some(std::mem::take(&mut details.metadata).into_iter().collect());
        }
        kept
    }
}

/// Fills an output with what is said of an object; the outputs of GET and HEAD have the same fields for it.
macro_rules! describe {
    ($output:ty, $object:expr, $slice:expr, $version:expr, $mode:expr) => {{
        let kept = $crate::s3::shared::descriptions::Kept::of(&mut $object.details);
        let content_type =
            kept.content_type.unwrap_or_else(|| $crate::s3::shared::descriptions::UNKNOWN_TYPE.to_owned());
        let mut output = <$output>::default();
        output.accept_ranges = Some("bytes".to_owned());
        output.cache_control = kept.cache_control;
        output.content_disposition = kept.content_disposition;
        output.content_encoding = kept.content_encoding;
        output.content_language = kept.content_language;
        output.content_length = i64::try_from($slice.bytes.end - $slice.bytes.start).ok();
        output.content_range = $slice.content_range;
        output.content_type = Some(content_type);
        output.e_tag = Some(s3s::dto::ETag::Strong(std::mem::take(&mut $object.etag)));
        output.expires = kept.expires;
        output.last_modified = Some($crate::s3::shared::times::timestamp($object.modified));
        output.metadata = kept.metadata;
        output.parts_count = $slice.parts_count;
        output.version_id = $version;
        output.website_redirect_location = kept.website_redirect_location;
        if let (Some((algorithm, scope, value)), true) = ($slice.checksum, $mode) {
            $crate::s3::shared::checksums::tell!(output, algorithm, value);
            output.checksum_type = Some($crate::s3::shared::checksums::scope_name(scope));
        }
        output
    }};
}
pub(in crate::s3) use describe;
