//! Operations on the tags of objects. [`tags`] parses and checks the tags themselves.

pub(in crate::s3) mod tags;

use s3s::dto::*;
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
