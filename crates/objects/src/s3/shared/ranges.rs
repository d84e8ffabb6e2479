//! The bytes of an object that a GET or HEAD requests: all, a range, or a part.

use std::ops::Range;

use http::HeaderValue;
use http::header::CONTENT_RANGE;
use s3s::{S3Error, S3Result, s3_error};
use tarn_model::objects::{Algorithm, MAX_PARTS, Object, Scope};

use crate::s3::shared::errors::{custom, with_headers};
use crate::{Error, Objects};

/// A range of an object's bytes, with its metadata.
pub(in crate::s3) struct Slice {
    pub(in crate::s3) bytes: Range<u64>,
    /// The Content-Range of the response, unless all bytes are requested.
    pub(in crate::s3) content_range: Option<String>,
    /// The number of parts of the object, when a part is requested.
    pub(in crate::s3) parts_count: Option<i32>,
    /// The checksum of these bytes, if it is known.
    pub(in crate::s3) checksum: Option<(Algorithm, Scope, String)>,
}

/// Returns the requested bytes. `NoSuchVersion` when the object has been removed: the caller looks it up again.
pub(in crate::s3) async fn requested_slice(
    objects: &Objects,
    object: &Object,
    range: Option<s3s::dto::Range>,
    part: Option<i32>,
) -> S3Result<Slice> {
    match (range, part) {
        (Some(_), Some(_)) => {
            Err(s3_error!(InvalidRequest, "Cannot specify both Range header and partNumber query parameter"))
        }
        (None, Some(number)) => part_slice(objects, object, number).await,
        (Some(range), None) => range_slice(object, range),
        (None, None) => Ok(whole_slice(object)),
    }
}

fn whole_slice(object: &Object) -> Slice {
    let checksum = object.details.checksum.as_ref().map(|sum| (sum.algorithm, sum.scope, sum.value.clone()));
    Slice { bytes: 0..object.size, content_range: None, parts_count: None, checksum }
}

fn range_slice(object: &Object, range: s3s::dto::Range) -> S3Result<Slice> {
    let bytes = range.check(object.size).ok().filter(|bytes| !bytes.is_empty()).ok_or_else(|| {
        let error =
            s3_error!(InvalidRange, "The requested range is not satisfiable: the object has {} bytes.", object.size);
        let total = HeaderValue::from_str(&format!("bytes */{}", object.size)).expect("digits are plain text");
        with_headers(error, [(CONTENT_RANGE, total)])
    })?;
    Ok(Slice { content_range: content_range(&bytes, object.size), bytes, parts_count: None, checksum: None })
}

async fn part_slice(objects: &Objects, object: &Object, number: i32) -> S3Result<Slice> {
    let wanted = u32::try_from(number).ok().filter(|number| (1..=MAX_PARTS).contains(number));
    let wanted = wanted.ok_or(Error::BadPartNumber)?;
    // The ETag of a multipart object contains the number of parts.
    let Some((_, count)) = object.etag.split_once('-') else {
        let mut whole = whole_slice(object);
        whole.content_range = content_range(&whole.bytes, object.size);
        return if wanted == 1 { Ok(whole) } else { Err(no_such_part()) };
    };
    let parts = objects.parts_of(object, 0, wanted).await?;
    if parts.is_empty() {
        return Err(Error::NoSuchVersion.into());
    }
    let start = parts.iter().filter(|part| part.number < wanted).map(|part| part.size).sum();
    let part = parts.into_iter().find(|part| part.number == wanted).ok_or_else(no_such_part)?;
    let bytes = start..start + part.size;
    // The type is that of the whole object, as in S3: clients compare it with what they know of the upload.
    let kind = object.details.checksum.as_ref().map(|sum| (sum.algorithm, sum.scope));
    Ok(Slice {
        content_range: content_range(&bytes, object.size),
        bytes,
        parts_count: count.parse().ok(),
        checksum: kind.zip(part.checksum).map(|((algorithm, scope), value)| (algorithm, scope, value)),
    })
}

/// An empty range has no Content-Range.
fn content_range(bytes: &Range<u64>, size: u64) -> Option<String> {
    (!bytes.is_empty()).then(|| format!("bytes {}-{}/{size}", bytes.start, bytes.end - 1))
}

fn no_such_part() -> S3Error {
    let message = "The requested partnumber is not satisfiable.";
    custom("InvalidPartNumber", http::StatusCode::RANGE_NOT_SATISFIABLE, message)
}
