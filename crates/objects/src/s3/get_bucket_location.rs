//! GetBucketLocation.

use s3s::dto::{BucketLocationConstraint, GetBucketLocationInput, GetBucketLocationOutput};
use s3s::{S3Request, S3Response, S3Result};

use super::{REGION, caller};
use crate::Objects;

pub(super) async fn answer(
    objects: &Objects,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    objects.bucket(&caller::organization(&request)?, &request.input.bucket).await?;
    let location_constraint = Some(BucketLocationConstraint::from_static(REGION));
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
}
