//! PutObject.

use s3s::dto::{ETag, PutObjectInput, PutObjectOutput};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::objects::Checksum;

use crate::Objects;
use crate::files::INLINE_MAX;
use crate::put::Stored;
use crate::s3::shared::headers::given;
use crate::s3::shared::{body, caller, checksums, conditions, version_ids};

pub(in crate::s3) async fn put_object(
    objects: &Objects,
    mut request: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    let asked = checksums::asked(&request)?;
    let place = caller::place(&request, &request.input.bucket, &request.input.key)?;
    let md5 = body::announced_md5(&request)?;
    let input = &mut request.input;
    if input.write_offset_bytes.is_some() {
        return Err(s3_error!(NotImplemented, "Objects cannot be appended to."));
    }
    let mut details = given!(input).into_details()?;
    let condition = conditions::for_put(input.if_match.as_ref(), input.if_none_match.as_ref())?;
    let declared = body::declared(input.content_length)?;
    if declared.is_none_or(|size| size > INLINE_MAX as u64) {
        // A large body that has nowhere to go need not come.
        objects.bucket(&place.org, &place.bucket).await?;
    }
    let taking = objects.intake(&place, declared, asked.sums()).await?;
    let received = body::receive(taking, input.body.take(), declared, md5).await?;
    details.checksum = asked.checksum(&received)?;
    let checksum = details.checksum.clone();
    let stored = objects.put(&place, received, details, condition).await?;
    Ok(S3Response::new(told(stored, checksum)))
}

fn told(stored: Stored, checksum: Option<Checksum>) -> PutObjectOutput {
    let mut output = PutObjectOutput {
        version_id: version_ids::shown(stored.version.as_ref()),
        e_tag: Some(ETag::Strong(stored.etag)),
        ..PutObjectOutput::default()
    };
    if let Some(Checksum { algorithm, scope, value }) = checksum {
        checksums::tell!(output, algorithm, value);
        output.checksum_type = Some(checksums::scope_name(scope));
    }
    output
}
