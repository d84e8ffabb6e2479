//! The headers in which clients describe an object, and what is stored of them.

use s3s::dto::{Metadata, ObjectCannedACL, StorageClass, Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};
use tarn_model::objects::Details;

use crate::s3::tagging::tags;

/// The maximum size in bytes of the names and values of user metadata.
const MAX_METADATA_BYTES: usize = 2048;

/// The maximum size in bytes of the names and values of all stored headers, including user metadata.
const MAX_STORED_BYTES: usize = 8192;

/// The headers of a call that creates an object: a put, a copy or the start of an upload.
#[derive(Default)]
pub(in crate::s3) struct ObjectHeaders {
    pub(in crate::s3) cache_control: Option<String>,
    pub(in crate::s3) content_disposition: Option<String>,
    pub(in crate::s3) content_encoding: Option<String>,
    pub(in crate::s3) content_language: Option<String>,
    pub(in crate::s3) content_type: Option<String>,
    pub(in crate::s3) expires: Option<Timestamp>,
    pub(in crate::s3) website_redirect_location: Option<String>,
    pub(in crate::s3) metadata: Option<Metadata>,
    pub(in crate::s3) tagging: Option<String>,
    pub(in crate::s3) storage_class: Option<StorageClass>,
    pub(in crate::s3) acl: Option<ObjectCannedACL>,
    /// Whether encryption is requested.
    pub(in crate::s3) encrypted: bool,
    /// Whether an object lock is requested.
    pub(in crate::s3) locked: bool,
    /// Whether access is granted to others.
    pub(in crate::s3) granted: bool,
}

/// Takes the headers out of an input. The inputs of the three operations have the same fields.
macro_rules! take_object_headers {
    ($input:expr) => {
        $crate::s3::shared::headers::ObjectHeaders {
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            content_type: $input.content_type.take(),
            expires: $input.expires.take(),
            website_redirect_location: $input.website_redirect_location.take(),
            metadata: $input.metadata.take(),
            tagging: $input.tagging.take(),
            storage_class: $input.storage_class.take(),
            acl: $input.acl.take(),
            encrypted: $input.server_side_encryption.is_some()
                || $input.sse_customer_algorithm.is_some()
                || $input.sse_customer_key.is_some()
                || $input.ssekms_key_id.is_some(),
            locked: $input.object_lock_legal_hold_status.is_some()
                || $input.object_lock_mode.is_some()
                || $input.object_lock_retain_until_date.is_some(),
            granted: $input.grant_full_control.is_some()
                || $input.grant_read.is_some()
                || $input.grant_read_acp.is_some()
                || $input.grant_write_acp.is_some(),
        }
    };
}
pub(in crate::s3) use take_object_headers;

impl ObjectHeaders {
    /// Returns the stored part of the headers, with the tags.
    pub(in crate::s3) fn into_details(self) -> S3Result<Details> {
        self.reject_unsupported_headers()?;
        let tags = self.tagging.as_deref().map(tags::tags_from_header).transpose()?.unwrap_or_default();
        let metadata = user_metadata(self.metadata)?;
        let expires = self.expires.as_ref().map(format_expires).transpose()?;
        let named = [
            ("content-type", self.content_type),
            ("cache-control", self.cache_control),
            ("content-disposition", self.content_disposition),
            ("content-encoding", self.content_encoding.and_then(strip_aws_chunked)),
            ("content-language", self.content_language),
            ("expires", expires),
            ("x-amz-website-redirect-location", self.website_redirect_location),
        ];
        let headers = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        let details = Details { headers, metadata, tags, checksum: None };
        check_stored_bytes(&details)?;
        Ok(details)
    }

    /// Rejects options that would be accepted without effect.
    pub(in crate::s3) fn reject_unsupported_headers(&self) -> S3Result<()> {
        if self.storage_class.as_ref().is_some_and(|class| class.as_str() != StorageClass::STANDARD) {
            return Err(s3_error!(InvalidStorageClass, "The only storage class is STANDARD."));
        }
        if self.encrypted {
            return Err(s3_error!(
                NotImplemented,
                "Objects are not encrypted by the server. Encrypt them before you send them."
            ));
        }
        if self.locked {
            return Err(s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration"));
        }
        let own =
            [ObjectCannedACL::PRIVATE, ObjectCannedACL::BUCKET_OWNER_FULL_CONTROL, ObjectCannedACL::BUCKET_OWNER_READ];
        if self.granted || self.acl.as_ref().is_some_and(|acl| !own.contains(&acl.as_str())) {
            return Err(s3_error!(
                AccessControlListNotSupported,
                "The bucket does not allow ACLs. Use presigned URLs to share."
            ));
        }
        Ok(())
    }
}

/// Rejects more headers than a row should have. Tags have their own limits.
pub(in crate::s3) fn check_stored_bytes(details: &Details) -> S3Result<()> {
    let stored = details.headers.iter().chain(&details.metadata);
    if stored.map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_STORED_BYTES {
        Err(s3_error!(
            RequestHeaderSectionTooLarge,
            "The headers that are kept with the object exceed the maximum of {MAX_STORED_BYTES} bytes in all."
        ))
    } else {
        Ok(())
    }
}

/// Rejects calls that send their own encryption key.
pub(in crate::s3) fn reject_customer_keys(brought: bool) -> S3Result<()> {
    if brought {
        Err(s3_error!(InvalidRequest, "The object is not encrypted by the server. Leave the key out."))
    } else {
        Ok(())
    }
}

/// Returns the encoding of the object itself: `aws-chunked` is only used in transit.
fn strip_aws_chunked(encoding: String) -> Option<String> {
    if !encoding.contains("aws-chunked") {
        return Some(encoding);
    }
    let others: Vec<&str> =
        encoding.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "aws-chunked").collect();
    (!others.is_empty()).then(|| others.join(","))
}

fn user_metadata(metadata: Option<Metadata>) -> S3Result<Vec<(String, String)>> {
    let mut all: Vec<(String, String)> = metadata.unwrap_or_default().into_iter().collect();
    let bytes: usize = all.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_METADATA_BYTES {
        return Err(s3_error!(
            MetadataTooLarge,
            "Your metadata headers exceed the maximum allowed metadata size of {MAX_METADATA_BYTES} bytes."
        ));
    }
    all.sort_unstable();
    Ok(all)
}

fn format_expires(time: &Timestamp) -> S3Result<String> {
    let mut text = Vec::new();
    let formatted = time.format(TimestampFormat::HttpDate, &mut text).ok().and_then(|()| String::from_utf8(text).ok());
    formatted.ok_or_else(|| s3_error!(InvalidArgument, "The date in Expires cannot be stored."))
}
