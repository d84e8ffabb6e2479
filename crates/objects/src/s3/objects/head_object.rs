//! HeadObject.

use s3s::dto::{ChecksumMode, HeadObjectInput, HeadObjectOutput};
use s3s::{S3Request, S3Response, S3Result};

use crate::Objects;
use crate::s3::shared::conditions::Conditions;
use crate::s3::shared::descriptions::describe_object;
use crate::s3::shared::ranges::requested_slice;
use crate::s3::shared::{caller, headers, version_ids};

pub(in crate::s3) async fn head_object(
    objects: &Objects,
    request: S3Request<HeadObjectInput>,
) -> S3Result<S3Response<HeadObjectOutput>> {
    let org = caller::organization(&request)?;
    let input = request.input;
    headers::reject_customer_keys(input.sse_customer_algorithm.is_some() || input.sse_customer_key.is_some())?;
    let selector = version_ids::parse_selector(input.version_id.as_deref())?;
    let mut object = objects.find(&org, &input.bucket, &input.key, &selector).await?;
    let conditions = Conditions {
        if_match: input.if_match.as_ref(),
        if_none_match: input.if_none_match.as_ref(),
        if_modified_since: input.if_modified_since.as_ref(),
        if_unmodified_since: input.if_unmodified_since.as_ref(),
    };
    conditions.check_read(&object)?;
    let slice = requested_slice(objects, &object, input.range, input.part_number).await?;
    let checksums = input.checksum_mode.as_ref().is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED);
    let version = version_ids::found_version(&object, &selector);
    let tags = object.details.tags.len();
    let mut output = describe_object!(HeadObjectOutput, object, slice, version, checksums);
    output.cache_control = input.response_cache_control.or(output.cache_control);
    output.content_disposition = input.response_content_disposition.or(output.content_disposition);
    output.content_encoding = input.response_content_encoding.or(output.content_encoding);
    output.content_language = input.response_content_language.or(output.content_language);
    output.content_type = input.response_content_type.or(output.content_type);
    output.expires = input.response_expires.or(output.expires);
    let mut response = S3Response::new(output);
    if tags > 0 {
        // The output of s3s has no field for it.
        response.headers.insert(s3s::header::X_AMZ_TAGGING_COUNT, tags.into());
    }
    Ok(response)
}
