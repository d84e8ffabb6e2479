//! Errors as S3 reports them: each has S3's own code, and a message that says what to do. Details for the operator go
//! to the log.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use s3s::{S3Error, S3ErrorCode, s3_error};
use tarn_model::ids::VersionId;

use crate::s3::shared::version_ids;
use crate::{Error, UnmetCondition};

/// The header in which an error carries the condition that does not hold to the front, which writes it into the body.
/// It never leaves this process.
pub(in crate::s3) const UNMET_CONDITION: HeaderName = HeaderName::from_static("tarn-unmet-condition");

impl From<Error> for S3Error {
    fn from(error: Error) -> Self {
        match error {
            Error::KeyEnded => unknown_key(),
            Error::NotEnabled | Error::Closing => s3_error!(InvalidAccessKeyId, "{error}."),
            Error::HoldsObjects(_) | Error::BucketNotEmpty => {
                s3_error!(BucketNotEmpty, "Delete the objects of the bucket, and all their versions, first.")
            }
            Error::BadBucketName(name) => s3_error!(InvalidBucketName, "{name}."),
            Error::BucketExists => {
                s3_error!(
                    BucketAlreadyOwnedByYou,
                    "You already have a bucket of this name. Use it, or choose another name."
                )
            }
            Error::TooManyBuckets(_) => s3_error!(TooManyBuckets, "{error}. Delete one that is not needed."),
            Error::UploadsOpen => s3_error!(OperationAborted, "Currently {error}. Try again when they have ended."),
            Error::NotYours => {
                s3_error!(
                    AccessDenied,
                    "Only the creator of the bucket and the administrators of your organization can delete it."
                )
            }
            Error::NoSuchBucket => s3_error!(NoSuchBucket, "The specified bucket does not exist. Create it first."),
            Error::NoSuchKey => s3_error!(NoSuchKey, "The specified key does not exist."),
            Error::KeyDeleted { marker } => with_marker(
                s3_error!(NoSuchKey, "The specified key was deleted. Its versions can be listed."),
                marker.as_ref(),
            ),
            Error::NoSuchVersion => s3_error!(NoSuchVersion, "The specified version does not exist."),
            Error::IsMarker { version } => with_marker(
                s3_error!(MethodNotAllowed, "The specified version is a delete marker. It can only be deleted."),
                version.as_ref(),
            ),
            Error::NoSuchUpload => {
                s3_error!(
                    NoSuchUpload,
                    "The upload does not exist; it may have been completed or aborted. Start another."
                )
            }
            Error::Refused(_) => s3_error!(InvalidRequest, "{error}."),
            Error::BadKey => s3_error!(InvalidArgument, "{error}."),
            Error::KeyTooLong => s3_error!(KeyTooLongError, "Your key is too long: {error}."),
            Error::PreconditionFailed(unmet) => precondition_failed(match unmet {
                UnmetCondition::Match => "If-Match",
                UnmetCondition::Absent => "If-None-Match",
                UnmetCondition::Size => "x-amz-if-match-size",
                UnmetCondition::Modified => "x-amz-if-match-last-modified-time",
            }),
            Error::InvalidPart(_) => s3_error!(InvalidPart, "{error}. Upload it again."),
            Error::InvalidPartOrder => s3_error!(InvalidPartOrder, "List the parts in ascending order, each once."),
            Error::PartTooSmall { .. } => s3_error!(EntityTooSmall, "{error}."),
            Error::BadPartNumber => {
                s3_error!(InvalidArgument, "Part number must be an integer between 1 and 10000, inclusive")
            }
            Error::TooLarge(_) => s3_error!(EntityTooLarge, "Your proposed upload exceeds the maximum: {error}."),
            Error::BadChecksum => {
                s3_error!(BadDigest, "The checksum or the size that you specified does not match what was received.")
            }
            Error::QuotaExceeded { .. } => custom(
                "QuotaExceeded",
                StatusCode::FORBIDDEN,
                &format!("This does not fit: {error}. Delete something first, or ask the operator for more."),
            ),
            Error::Full => custom(
                "InsufficientStorage",
                StatusCode::INSUFFICIENT_STORAGE,
                "There is no space left for objects. Delete something, or ask the operator.",
            ),
            Error::Store(tarn_store::Error::Unavailable(_)) => {
                tracing::error!(%error, "an S3 call failed");
                s3_error!(ServiceUnavailable, "The service is currently unavailable. Try again.")
            }
            Error::Store(_) | Error::File(_) => {
                tracing::error!(%error, "an S3 call failed");
                s3_error!(
                    InternalError,
                    "We encountered an internal error. Try again, and tell the operator if it persists."
                )
            }
        }
    }
}

/// The refusal of a key that does not exist, or no longer works.
pub(in crate::s3) fn unknown_key() -> S3Error {
    s3_error!(
        InvalidAccessKeyId,
        "The AWS Access Key Id you provided does not exist in our records. Ask for the current credentials."
    )
}

/// Returns the error for a condition that does not hold, with the name of its header. Clients tell by that name why a
/// put was refused.
pub(in crate::s3) fn precondition_failed(header: &'static str) -> S3Error {
    let error = s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold");
    with_headers(error, [(UNMET_CONDITION, HeaderValue::from_static(header))])
}

/// Returns an error whose code is not one of S3's.
pub(in crate::s3) fn custom(code: &'static str, status: StatusCode, message: &str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message.to_owned());
    error.set_status_code(status);
    error
}

/// Adds the headers that identify a delete marker to an error.
fn with_marker(error: S3Error, version: Option<&VersionId>) -> S3Error {
    let id = HeaderValue::from_str(&version_ids::version_text(version)).expect("the id of a version is plain text");
    with_headers(
        error,
        [(s3s::header::X_AMZ_DELETE_MARKER, HeaderValue::from_static("true")), (s3s::header::X_AMZ_VERSION_ID, id)],
    )
}

/// Adds headers to an error. They replace the content type, so that is added again.
pub(in crate::s3) fn with_headers(
    mut error: S3Error,
    headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> S3Error {
    let mut all: HeaderMap = headers.into_iter().collect();
    all.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    error.set_headers(all);
    error
}
