//! The metadata that GET and HEAD return for an object.

use s3s::dto::{Metadata, Timestamp, TimestampFormat};
use tarn_model::objects::Details;

/// The content type of an object without one.
pub(in crate::s3) const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";

/// The stored headers, by their fields in an output.
#[derive(Default)]
pub(in crate::s3) struct StoredHeaders {
    pub(in crate::s3) content_type: Option<String>,
    pub(in crate::s3) cache_control: Option<String>,
    pub(in crate::s3) content_disposition: Option<String>,
    pub(in crate::s3) content_encoding: Option<String>,
    pub(in crate::s3) content_language: Option<String>,
    pub(in crate::s3) expires: Option<Timestamp>,
    pub(in crate::s3) website_redirect_location: Option<String>,
    pub(in crate::s3) metadata: Option<Metadata>,
}

impl StoredHeaders {
    /// Takes the stored headers out of the details.
    pub(in crate::s3) fn take_from(details: &mut Details) -> Self {
        let mut stored = StoredHeaders::default();
        for (name, value) in std::mem::take(&mut details.headers) {
            match name.as_str() {
                "content-type" => stored.content_type = Some(value),
                "cache-control" => stored.cache_control = Some(value),
                "content-disposition" => stored.content_disposition = Some(value),
                "content-encoding" => stored.content_encoding = Some(value),
                "content-language" => stored.content_language = Some(value),
                "expires" => stored.expires = Timestamp::parse(TimestampFormat::HttpDate, &value).ok(),
                "x-amz-website-redirect-location" => stored.website_redirect_location = Some(value),
                // A later version may store headers that this one does not know.
                _ => {}
            }
        }
        if !details.metadata.is_empty() {
            stored.metadata = Some(std::mem::take(&mut details.metadata).into_iter().collect());
        }
        stored
    }
}

/// Fills an output with the metadata of an object. The outputs of GET and HEAD have the same fields for it.
macro_rules! describe_object {
    ($output:ty, $object:expr, $slice:expr, $version:expr, $mode:expr) => {{
        let stored = $crate::s3::shared::descriptions::StoredHeaders::take_from(&mut $object.details);
        let content_type =
            stored.content_type.unwrap_or_else(|| $crate::s3::shared::descriptions::DEFAULT_CONTENT_TYPE.to_owned());
        let mut output = <$output>::default();
        output.accept_ranges = Some("bytes".to_owned());
        output.cache_control = stored.cache_control;
        output.content_disposition = stored.content_disposition;
        output.content_encoding = stored.content_encoding;
        output.content_language = stored.content_language;
        output.content_length = i64::try_from($slice.bytes.end - $slice.bytes.start).ok();
        output.content_range = $slice.content_range;
        output.content_type = Some(content_type);
        output.e_tag = Some(s3s::dto::ETag::Strong(std::mem::take(&mut $object.etag)));
        output.expires = stored.expires;
        output.last_modified = Some($crate::s3::shared::times::timestamp($object.modified));
        output.metadata = stored.metadata;
        output.parts_count = $slice.parts_count;
        output.version_id = $version;
        output.website_redirect_location = stored.website_redirect_location;
        if let (Some((algorithm, scope, value)), true) = ($slice.checksum, $mode) {
            $crate::s3::shared::checksums::set_checksum!(output, algorithm, value);
            output.checksum_type = Some($crate::s3::shared::checksums::scope_name(scope));
        }
        output
    }};
}
pub(in crate::s3) use describe_object;
