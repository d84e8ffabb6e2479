//! GetBucketVersioning.

use s3s::dto::{BucketVersioningStatus, GetBucketVersioningInput, GetBucketVersioningOutput};
use s3s::{S3Request, S3Response, S3Result};
use tarn_model::buckets::Versioning;

use crate::Objects;
use crate::s3::shared::caller;

pub(in crate::s3) async fn get_bucket_versioning(
    objects: &Objects,
    request: S3Request<GetBucketVersioningInput>,
) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    let bucket = objects.bucket(&caller::organization(&request)?, &request.input.bucket).await?;
    let status = match bucket.versioning {
        Versioning::Off => None,
        Versioning::Enabled => Some(BucketVersioningStatus::ENABLED),
        Versioning::Suspended => Some(BucketVersioningStatus::SUSPENDED),
    };
    let status = status.map(BucketVersioningStatus::from_static);
    Ok(S3Response::new(GetBucketVersioningOutput { status, ..GetBucketVersioningOutput::default() }))
}
