//! PutObject.

use s3s::dto::{ETag, PutObjectInput, PutObjectOutput};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::objects::Checksum;

use crate::Objects;
use crate::files::INLINE_MAX;
use crate::put::Stored;
use crate::s3::shared::headers::take_object_headers;
use crate::s3::shared::{body, caller, checksums, conditions, version_ids};

pub(in crate::s3) async fn put_object(
    objects: &Objects,
    mut request: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    let requested = checksums::requested_checksum(&request)?;
    let location = caller::object_location(&request, &request.input.bucket, &request.input.key)?;
    let md5 = body::announced_md5(&request)?;
    let input = &mut request.input;
    if input.write_offset_bytes.is_some() {
        return Err(s3_error!(NotImplemented, "Objects cannot be appended to."));
    }
    let mut details = take_object_headers!(input).into_details()?;
    let condition = conditions::put_condition(input.if_match.as_ref(), input.if_none_match.as_ref())?;
    let declared = body::declared_length(input.content_length)?;
    if declared.is_none_or(|size| size > INLINE_MAX as u64) {
        // A large body for a missing bucket is refused before it is sent.
        objects.bucket(&location.org, &location.bucket).await?;
    }
    let intake = objects.intake(&location, declared, requested.sums()).await?;
    let received = body::receive_body(intake, input.body.take(), declared, md5).await?;
    details.checksum = requested.checksum(&received)?;
    let checksum = details.checksum.clone();
    let stored = objects.put(&location, received, details, condition).await?;
    Ok(S3Response::new(put_output(stored, checksum)))
}

fn put_output(stored: Stored, checksum: Option<Checksum>) -> PutObjectOutput {
    let mut output = PutObjectOutput {
        version_id: version_ids::stored_version(&stored.version),
        e_tag: Some(ETag::Strong(stored.etag)),
        ..PutObjectOutput::default()
    };
    if let Some(Checksum { algorithm, scope, value }) = checksum {
        checksums::set_checksum!(output, algorithm, value);
        output.checksum_type = Some(checksums::scope_name(scope));
    }
    output
}
