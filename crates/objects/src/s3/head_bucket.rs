//! HeadBucket.

use s3s::dto::{HeadBucketInput, HeadBucketOutput};
use s3s::{S3Request, S3Response, S3Result};

use super::{REGION, caller};
use crate::Objects;

pub(super) async fn answer(
    objects: &Objects,
    request: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    objects.bucket(&caller::organization(&request)?, &request.input.bucket).await?;
    Ok(S3Response::new(HeadBucketOutput { bucket_region: Some(REGION.to_owned()), ..HeadBucketOutput::default() }))
}
