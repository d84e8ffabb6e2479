//! PutBucketVersioning.

use s3s::dto::{BucketVersioningStatus, MFADelete, PutBucketVersioningInput, PutBucketVersioningOutput};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::buckets::Versioning;

use crate::Objects;
use crate::s3::shared::caller;

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
