//! AbortMultipartUpload.

use s3s::dto::{AbortMultipartUploadInput, AbortMultipartUploadOutput};
use s3s::{S3Request, S3Response, S3Result};

use crate::Objects;
use crate::s3::shared::errors::precondition_failed;
use crate::s3::shared::{caller, times};

pub(in crate::s3) async fn abort_multipart_upload(
    objects: &Objects,
    request: S3Request<AbortMultipartUploadInput>,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let location = caller::object_location(&request, &request.input.bucket, &request.input.key)?;
    if let Some(begun) = &request.input.if_match_initiated_time {
        let upload = objects.upload(&location, &request.input.upload_id).await?;
        if times::whole_seconds(upload.created) != *begun {
            return Err(precondition_failed("x-amz-if-match-initiated-time"));
        }
    }
    objects.abort_upload(&location, &request.input.upload_id).await?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}
