//! DeleteObject.

use s3s::dto::{DeleteObjectInput, DeleteObjectOutput};
use s3s::{S3Request, S3Response, S3Result};

use crate::Objects;
use crate::delete::DeleteCondition;
use crate::s3::shared::{caller, conditions, times, version_ids};

pub(in crate::s3) async fn delete_object(
    objects: &Objects,
    request: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let org = caller::organization(&request)?;
    let DeleteObjectInput { bucket, key, version_id, .. } = &request.input;
    let condition = DeleteCondition {
        if_match: request.input.if_match.as_ref().map(conditions::wanted_etag),
        size: request.input.if_match_size,
        modified_second: request
            .input
            .if_match_last_modified_time
            .as_ref()
            .map(|time| times::second(time).unwrap_or(i64::MIN)),
    };
    let selector = version_ids::parse_selector(version_id.as_deref())?;
    let deleted = objects.delete_if(&org, bucket, key, &selector, condition).await?;
    let output = DeleteObjectOutput {
        delete_marker: deleted.marker.then_some(true),
        version_id: version_ids::stored_version(&deleted.version),
        ..DeleteObjectOutput::default()
    };
    Ok(S3Response::new(output))
}
