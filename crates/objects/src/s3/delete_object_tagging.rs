//! DeleteObjectTagging.

use s3s::dto::{DeleteObjectTaggingInput, DeleteObjectTaggingOutput};
use s3s::{S3Request, S3Response, S3Result};

use super::{caller, versions};
use crate::Objects;

pub(super) async fn answer(
    objects: &Objects,
    request: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let org = caller::organization(&request)?;
    let input = request.input;
    let which = versions::which(input.version_id.as_deref())?;
    let object = objects.set_tags(&org, &input.bucket, &input.key, &which, Vec::new()).await?;
    let version_id = object.version.map(|version| version.to_string());
    Ok(S3Response::new(DeleteObjectTaggingOutput { version_id }))
}
