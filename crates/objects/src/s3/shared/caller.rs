//! The caller: the organization whose access key signed the request, and the user, if the key is personal.

use std::sync::Arc;

use s3s::{S3Request, S3Result, s3_error};
use tarn_model::ids::{OrgId, UserId};

use crate::Objects;
use crate::caller::Caller;
use crate::put::ObjectLocation;

/// Returns the handle with which the operation of a request reads and writes.
pub(in crate::s3) fn handle<T>(objects: &Objects, request: &S3Request<T>) -> S3Result<Objects> {
    Ok(objects.for_caller(caller(request)?.clone()))
}

/// Returns the organization that the access check found.
pub(in crate::s3) fn organization<T>(request: &S3Request<T>) -> S3Result<OrgId> {
    Ok(caller(request)?.org().clone())
}

/// Returns the user that the access check found. A key may also stand for the whole organization.
pub(in crate::s3) fn user<T>(request: &S3Request<T>) -> S3Result<Option<&UserId>> {
    Ok(caller(request)?.holder.user.as_ref())
}

/// Returns the object location that a request names.
pub(in crate::s3) fn object_location<T>(request: &S3Request<T>, bucket: &str, key: &str) -> S3Result<ObjectLocation> {
    Ok(ObjectLocation { org: organization(request)?, bucket: bucket.to_owned(), key: key.to_owned() })
}

fn caller<T>(request: &S3Request<T>) -> S3Result<&Arc<Caller>> {
    request.extensions.get::<Arc<Caller>>().ok_or_else(|| s3_error!(AccessDenied, "Sign the request."))
}
