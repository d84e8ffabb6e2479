//! GetBucketLocation.

use s3s::dto::{BucketLocationConstraint, GetBucketLocationInput, GetBucketLocationOutput};
use s3s::{S3Request, S3Response, S3Result};

use crate::Objects;
use crate::s3::REGION;
use crate::s3::shared::caller;

pub(in crate::s3) async fn get_bucket_location(
    objects: &Objects,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    objects.bucket(&caller::organization(&request)?, &request.input.bucket).await?;
    let location_constraint = Some(BucketLocationConstraint::from_static(REGION));
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
}
