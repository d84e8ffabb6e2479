//! DeleteBucket.

use s3s::dto::{DeleteBucketInput, DeleteBucketOutput};
use s3s::{S3Request, S3Response, S3Result};

use super::caller;
use crate::Objects;

pub(super) async fn answer(
    objects: &Objects,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    objects.remove_bucket(&caller::organization(&request)?, &request.input.bucket).await?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}
