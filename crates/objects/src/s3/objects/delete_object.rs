//! DeleteObject.

use s3s::dto::{DeleteObjectInput, DeleteObjectOutput};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::Objects;
use crate::find::VersionSelector;
use crate::s3::shared::{caller, version_ids};

pub(in crate::s3) async fn delete_object(
    objects: &Objects,
    request: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let org = caller::organization(&request)?;
    let DeleteObjectInput { bucket, key, version_id, .. } = &request.input;
    let conditional = request.input.if_match.is_some()
        || request.input.if_match_size.is_some()
        || request.input.if_match_last_modified_time.is_some();
    if conditional {
        return Err(s3_error!(NotImplemented, "A deletion cannot have conditions."));
    }
    let deleted = match version_ids::parse_selector(version_id.as_deref())? {
        VersionSelector::Current => objects.delete(&org, bucket, key).await?,
        VersionSelector::Version(version) => objects.delete_version(&org, bucket, key, version.as_ref()).await?,
    };
    let output = DeleteObjectOutput {
        delete_marker: deleted.marker.then_some(true),
        version_id: version_ids::stored_version(&deleted.version),
        ..DeleteObjectOutput::default()
    };
    Ok(S3Response::new(output))
}
