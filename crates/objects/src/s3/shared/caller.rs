//! Who calls: the organization whose access key signed the request.

use s3s::{S3Request, S3Result, s3_error};
use tarn_model::ids::OrgId;

use crate::put::Place;

/// The organization that the gate found for the access key.
pub(in crate::s3) fn organization<T>(request: &S3Request<T>) -> S3Result<OrgId> {
    request.extensions.get::<OrgId>().cloned().ok_or_else(|| s3_error!(AccessDenied, "Sign the request."))
}

/// The place that a request names.
pub(in crate::s3) fn place<T>(request: &S3Request<T>, bucket: &str, key: &str) -> S3Result<Place> {
    Ok(Place { org: organization(request)?, bucket: bucket.to_owned(), key: key.to_owned() })
}
