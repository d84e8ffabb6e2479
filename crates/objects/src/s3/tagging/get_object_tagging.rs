//! GetObjectTagging.

use s3s::dto::{GetObjectTaggingInput, GetObjectTaggingOutput};
use s3s::{S3Request, S3Response, S3Result};

use crate::Objects;
use crate::s3::shared::{caller, version_ids};
use crate::s3::tagging::tags;

pub(in crate::s3) async fn get_object_tagging(
    objects: &Objects,
    request: S3Request<GetObjectTaggingInput>,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    let org = caller::organization(&request)?;
    let input = request.input;
    let selector = version_ids::parse_selector(input.version_id.as_deref())?;
    let object = objects.find(&org, &input.bucket, &input.key, &selector).await?;
    let version_id = object.version.map(|version| version.to_string());
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set: tags::tags_to_set(object.details.tags), version_id }))
}
