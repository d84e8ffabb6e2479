//! PutObjectTagging: replaces all tags of an object.

use s3s::dto::{PutObjectTaggingInput, PutObjectTaggingOutput};
use s3s::{S3Request, S3Response, S3Result};

use crate::Objects;
use crate::s3::shared::{caller, version_ids};
use crate::s3::tagging::tags;

pub(in crate::s3) async fn put_object_tagging(
    objects: &Objects,
    request: S3Request<PutObjectTaggingInput>,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    let org = caller::organization(&request)?;
    let input = request.input;
    let selector = version_ids::parse_selector(input.version_id.as_deref())?;
    let tags = tags::tags_from_set(input.tagging.tag_set)?;
    let object = objects.set_tags(&org, &input.bucket, &input.key, &selector, tags).await?;
    let version_id = object.version.map(|version| version.to_string());
    Ok(S3Response::new(PutObjectTaggingOutput { version_id }))
}
