//! Operations on buckets: each function has the name of its S3 operation.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::buckets::{self, Versioning};

use crate::Objects;
use crate::s3::REGION;
use crate::s3::shared::{caller, times};

/// The maximum number of buckets of a page.
const MAX_PAGE: i32 = 10_000;

/// Creates a bucket. Any location is accepted: there is only one.
pub(in crate::s3) async fn create_bucket(
    objects: &Objects,
    request: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    reject_unsupported_options(&request.input)?;
    let (org, user) = (caller::organization(&request)?, caller::user(&request)?);
    let bucket = objects.create_bucket(&org, user, &request.input.bucket).await?;
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

pub(in crate::s3) async fn delete_bucket(
    objects: &Objects,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    let (org, user) = (caller::organization(&request)?, caller::user(&request)?);
    objects.remove_bucket(&org, user, &request.input.bucket).await?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

pub(in crate::s3) async fn head_bucket(
    objects: &Objects,
    request: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    objects.bucket(&caller::organization(&request)?, &request.input.bucket).await?;
    Ok(S3Response::new(HeadBucketOutput { bucket_region: Some(REGION.to_owned()), ..HeadBucketOutput::default() }))
}

pub(in crate::s3) async fn list_buckets(
    objects: &Objects,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let org = caller::organization(&request)?;
    let ListBucketsInput { bucket_region, continuation_token, max_buckets, prefix } = request.input;
    let limit = max_buckets.unwrap_or(MAX_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(s3_error!(InvalidArgument, "max-buckets must be between 1 and {MAX_PAGE}"));
    }
    let here = bucket_region.is_none_or(|region| region == REGION);
    let mut found = objects.buckets(&org).await?;
    found.retain(|bucket| {
        here && prefix.as_ref().is_none_or(|prefix| bucket.name.starts_with(prefix))
            && continuation_token.as_ref().is_none_or(|last| bucket.name > *last)
    });
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let output = ListBucketsOutput {
        continuation_token: found.last().filter(|_| more).map(|last| last.name.clone()),
        owner: Some(Owner { display_name: Some(org.to_string()), id: Some(org.to_string()) }),
        prefix,
        buckets: Some(found.into_iter().map(bucket_entry).collect()),
    };
    Ok(S3Response::new(output))
}

fn bucket_entry(bucket: buckets::Bucket) -> Bucket {
    Bucket {
        bucket_region: Some(REGION.to_owned()),
        creation_date: Some(times::timestamp(bucket.created)),
        name: Some(bucket.name),
    }
}

pub(in crate::s3) async fn get_bucket_location(
    objects: &Objects,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    objects.bucket(&caller::organization(&request)?, &request.input.bucket).await?;
    let location_constraint = Some(BucketLocationConstraint::from_static(REGION));
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
}

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

pub(in crate::s3) async fn put_bucket_versioning(
    objects: &Objects,
    request: S3Request<PutBucketVersioningInput>,
) -> S3Result<S3Response<PutBucketVersioningOutput>> {
    let wanted = &request.input.versioning_configuration;
    if wanted.mfa_delete.as_ref().is_some_and(|mfa| mfa.as_str() != MFADelete::DISABLED) {
        return Err(s3_error!(NotImplemented, "MFA delete is not implemented."));
    }
    let versioning = match wanted.status.as_ref().map(BucketVersioningStatus::as_str) {
        Some(BucketVersioningStatus::ENABLED) => Versioning::Enabled,
        Some(BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
        Some(_) => return Err(s3_error!(MalformedXML, "The versioning status must be Enabled or Suspended.")),
        None => {
            return Err(s3_error!(
                IllegalVersioningConfigurationException,
                "The versioning configuration must have the status Enabled or Suspended."
            ));
        }
    };
    objects.set_versioning(&caller::organization(&request)?, &request.input.bucket, versioning).await?;
    Ok(S3Response::new(PutBucketVersioningOutput::default()))
}
