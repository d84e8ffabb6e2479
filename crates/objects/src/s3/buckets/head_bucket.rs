//! HeadBucket.

use s3s::dto::{HeadBucketInput, HeadBucketOutput};
use s3s::{S3Request, S3Response, S3Result};

use crate::Objects;
use crate::s3::REGION;
use crate::s3::shared::caller;

pub(in crate::s3) async fn head_bucket(
    objects: &Objects,
    request: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    objects.bucket(&caller::organization(&request)?, &request.input.bucket).await?;
    Ok(S3Response::new(HeadBucketOutput { bucket_region: Some(REGION.to_owned()), ..HeadBucketOutput::default() }))
}
