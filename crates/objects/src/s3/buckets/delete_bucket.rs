//! DeleteBucket.

use s3s::dto::{DeleteBucketInput, DeleteBucketOutput};
use s3s::{S3Request, S3Response, S3Result};

use crate::Objects;
use crate::s3::shared::caller;

pub(in crate::s3) async fn delete_bucket(
    objects: &Objects,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    objects.remove_bucket(&caller::organization(&request)?, &request.input.bucket).await?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}
