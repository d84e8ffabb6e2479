//! The tags of buckets.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_store::bucket_settings::SettingKind;

use crate::Objects;
use crate::s3::shared::caller;
use crate::s3::tagging::tags;

pub(in crate::s3) async fn delete_bucket_tagging(
    objects: &Objects,
    request: S3Request<DeleteBucketTaggingInput>,
) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
    let org = caller::organization(&request)?;
    objects.set_setting::<()>(&org, &request.input.bucket, SettingKind::Tags, None).await?;
    Ok(S3Response::new(DeleteBucketTaggingOutput::default()))
}

pub(in crate::s3) async fn get_bucket_tagging(
    objects: &Objects,
    request: S3Request<GetBucketTaggingInput>,
) -> S3Result<S3Response<GetBucketTaggingOutput>> {
    let org = caller::organization(&request)?;
    let tags = objects.setting(&org, &request.input.bucket, SettingKind::Tags).await?;
    let tags = tags.ok_or_else(|| s3_error!(NoSuchTagSet, "The TagSet does not exist"))?;
    Ok(S3Response::new(GetBucketTaggingOutput { tag_set: tags::tags_to_set(tags) }))
}

pub(in crate::s3) async fn put_bucket_tagging(
    objects: &Objects,
    request: S3Request<PutBucketTaggingInput>,
) -> S3Result<S3Response<PutBucketTaggingOutput>> {
    let org = caller::organization(&request)?;
    let tags = tags::bucket_tags_from_set(request.input.tagging.tag_set)?;
    objects.set_setting(&org, &request.input.bucket, SettingKind::Tags, Some(tags)).await?;
    Ok(S3Response::new(PutBucketTaggingOutput::default()))
}
