//! CreateBucket. Any location is accepted: there is only one.

use s3s::dto::{BucketCannedACL, CreateBucketInput, CreateBucketOutput, ObjectOwnership};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::Objects;
use crate::s3::shared::caller;

pub(in crate::s3) async fn create_bucket(
    objects: &Objects,
    request: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    reject_unsupported_options(&request.input)?;
    let bucket = objects.create_bucket(&caller::organization(&request)?, &request.input.bucket).await?;
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{}", bucket.name)) }))
}

/// Rejects options that would be accepted without effect.
fn reject_unsupported_options(input: &CreateBucketInput) -> S3Result<()> {
    if input.object_lock_enabled_for_bucket == Some(true) {
        return Err(s3_error!(NotImplemented, "Object Lock is not implemented."));
    }
    let granted = input.grant_full_control.is_some()
        || input.grant_read.is_some()
        || input.grant_read_acp.is_some()
        || input.grant_write.is_some()
        || input.grant_write_acp.is_some();
    if granted || input.acl.as_ref().is_some_and(|acl| acl.as_str() != BucketCannedACL::PRIVATE) {
        return Err(s3_error!(AccessControlListNotSupported, "Buckets have no ACLs. Use presigned URLs to share."));
    }
    let shared = |owner: &ObjectOwnership| owner.as_str() != ObjectOwnership::BUCKET_OWNER_ENFORCED;
    if input.object_ownership.as_ref().is_some_and(shared) {
        return Err(s3_error!(NotImplemented, "The bucket's owner owns all objects: use BucketOwnerEnforced."));
    }
    Ok(())
}
