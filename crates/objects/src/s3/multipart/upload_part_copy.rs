//! UploadPartCopy: a part from an existing object.

use std::ops::Range;

use s3s::dto::{CopyPartResult, CopySource, ETag, UploadPartCopyInput, UploadPartCopyOutput};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};
use tarn_model::ids::OrgId;
use tarn_model::objects::{MAX_PUT_BYTES, Object, Upload};

use crate::files::{Received, Sums};
use crate::put::{ObjectLocation, Replaced, check_key};
use crate::s3::multipart::upload_part;
use crate::s3::shared::conditions::Conditions;
use crate::s3::shared::{caller, checksums, times, version_ids};
use crate::{Error, Objects};

/// How often the source is looked up when it is replaced while it is copied.
const MAX_TRIES: u32 = 3;

pub(in crate::s3) async fn upload_part_copy(
    objects: &Objects,
    request: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let location = caller::object_location(&request, &request.input.bucket, &request.input.key)?;
    let input = request.input;
    let number = upload_part::part_number(input.part_number)?;
    let wanted = input.copy_source_range.as_deref().map(parse_copy_range).transpose()?;
    let upload = objects.upload(&location, &input.upload_id).await?;
    let algorithm = upload.checksum.map(|(algorithm, _)| algorithm);
    let (source, received) = receive_source(objects, &location, &input, &upload, wanted).await?;
    let checksum = algorithm.and_then(|algorithm| checksums::received_checksum(&received, algorithm));
    let part = objects.put_part(&location, &input.upload_id, number, received, checksum.clone()).await?;
    let modified = times::timestamp(part.modified);
    let mut result =
        CopyPartResult { e_tag: Some(ETag::Strong(part.etag)), last_modified: Some(modified), ..Default::default() };
    if let Some((algorithm, value)) = algorithm.zip(checksum) {
        checksums::set_checksum!(result, algorithm, value);
    }
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(result),
        copy_source_version_id: source.version.map(|version| version.to_string()),
        ..Default::default()
    }))
}

/// Receives the bytes of the source as a part. A source that is replaced meanwhile is looked up again.
async fn receive_source(
    objects: &Objects,
    location: &ObjectLocation,
    input: &UploadPartCopyInput,
    upload: &Upload,
    wanted: Option<Range<u64>>,
) -> S3Result<(Object, Received)> {
    let sums = Sums::with(upload.checksum.map(|(algorithm, _)| algorithm));
    let replaced = Replaced::Part(upload, upload_part::part_number(input.part_number)?);
    let mut tries = 0;
    loop {
        tries += 1;
        let source = find_source_object(objects, &location.org, input).await?;
        let range = range_in_source(wanted.clone(), source.size)?;
        objects.check_room(location, &replaced, Some(range.end - range.start)).await?;
        match objects.receive_again(&source, range, sums, true).await {
            Err(Error::NoSuchVersion) if tries < MAX_TRIES => {}
            taken => return Ok((source, taken?)),
        }
    }
}

async fn find_source_object(objects: &Objects, org: &OrgId, input: &UploadPartCopyInput) -> S3Result<Object> {
    let CopySource::Bucket { bucket, key, version_id } = &input.copy_source else {
        return Err(s3_error!(NotImplemented, "Name the source as bucket/key."));
    };
    check_key(key)?;
    let selector = version_ids::parse_selector(version_id.as_deref())?;
    let source = objects.find(org, bucket, key, &selector).await?;
    let conditions = Conditions {
        if_match: input.copy_source_if_match.as_ref(),
        if_none_match: input.copy_source_if_none_match.as_ref(),
        if_modified_since: input.copy_source_if_modified_since.as_ref(),
        if_unmodified_since: input.copy_source_if_unmodified_since.as_ref(),
    };
    conditions.check_copy(&source)?;
    Ok(source)
}

/// Parses the range that a call requests. Both ends are required here.
fn parse_copy_range(text: &str) -> S3Result<Range<u64>> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let parsed = || {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last): (u64, u64) = (number(first)?, number(last)?);
        (first <= last).then(|| Some(first..last.checked_add(1)?)).flatten()
    };
    parsed().ok_or_else(|| {
        s3_error!(
            InvalidArgument,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the \
             zero-based offsets of the first and last bytes to copy"
        )
    })
}

/// Returns the range in a source of this size; without one, all of it.
fn range_in_source(wanted: Option<Range<u64>>, size: u64) -> S3Result<Range<u64>> {
    let range = match wanted {
        None => 0..size,
        Some(range) if range.end <= size => range,
        Some(_) => return Err(range_outside(size)),
    };
    if range.end - range.start > MAX_PUT_BYTES {
        Err(s3_error!(
            InvalidRequest,
            "The specified copy source is larger than the maximum allowable size for a copy source: {MAX_PUT_BYTES}. Copy \
             it in ranges."
        ))
    } else {
        Ok(range)
    }
}

fn range_outside(size: u64) -> S3Error {
    s3_error!(InvalidArgument, "Range specified is not valid for source object of size: {size}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A range has both ends within the source.
    #[test]
    fn copy_range_is_within_source() {
        assert_eq!(parse_copy_range("bytes=0-4").unwrap(), 0..5);
        for bad in
            ["0-2", "bytes=0", "bytes=a-b", "bytes=0-", "bytes=-2", "bytes=3-2", "bytes=0-2,3-5", "bytes=+1-2", ""]
        {
            assert_eq!(parse_copy_range(bad).unwrap_err().code().as_str(), "InvalidArgument", "{bad}");
        }
        assert_eq!(parse_copy_range(&format!("bytes=0-{}", u64::MAX)).unwrap_err().code().as_str(), "InvalidArgument");
        assert_eq!(range_in_source(Some(0..5), 5).unwrap(), 0..5);
        assert_eq!(range_in_source(None, 0).unwrap(), 0..0);
        assert_eq!(range_in_source(Some(5..6), 5).unwrap_err().code().as_str(), "InvalidArgument");
        assert_eq!(range_in_source(None, MAX_PUT_BYTES + 1).unwrap_err().code().as_str(), "InvalidRequest");
    }
}
