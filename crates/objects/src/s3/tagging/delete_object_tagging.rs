//! DeleteObjectTagging.

use s3s::dto::{DeleteObjectTaggingInput, DeleteObjectTaggingOutput};
use s3s::{S3Request, S3Response, S3Result};

use crate::Objects;
use crate::s3::shared::{caller, version_ids};

pub(in crate::s3) async fn delete_object_tagging(
    objects: &Objects,
    request: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let org = caller::organization(&request)?;
    let input = request.input;
    let selector = version_ids::parse_selector(input.version_id.as_deref())?;
    let object = objects.set_tags(&org, &input.bucket, &input.key, &selector, Vec::new()).await?;
    let version_id = object.version.map(|version| version.to_string());
    Ok(S3Response::new(DeleteObjectTaggingOutput { version_id }))
}
