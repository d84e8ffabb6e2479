//! The caller: the organization whose access key signed the request, and the user, if the key is personal.

use s3s::{S3Request, S3Result, s3_error};
use tarn_model::ids::{OrgId, UserId};

use crate::put::ObjectLocation;

/// Returns the organization that the access check found.
pub(in crate::s3) fn organization<T>(request: &S3Request<T>) -> S3Result<OrgId> {
    request.extensions.get::<OrgId>().cloned().ok_or_else(|| s3_error!(AccessDenied, "Sign the request."))
}

/// Returns the user that the access check found. A key may also stand for the whole organization.
pub(in crate::s3) fn user<T>(request: &S3Request<T>) -> Option<&UserId> {
    request.extensions.get::<UserId>()
}

/// Returns the object location that a request names.
pub(in crate::s3) fn object_location<T>(request: &S3Request<T>, bucket: &str, key: &str) -> S3Result<ObjectLocation> {
    Ok(ObjectLocation { org: organization(request)?, bucket: bucket.to_owned(), key: key.to_owned() })
}
