//! PostObject: browser forms are refused. Without this file, s3s would turn them into puts.

use s3s::dto::{PostObjectInput, PostObjectOutput};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::Objects;

pub(in crate::s3) async fn post_object(
    _: &Objects,
    _: S3Request<PostObjectInput>,
) -> S3Result<S3Response<PostObjectOutput>> {
    Err(s3_error!(NotImplemented, "Forms are not accepted. Use a presigned PUT instead."))
}
