//! The closed list of errors that a caller can receive, each with a public message and a private cause.

use tarn_model::{Refused, ids, names};

/// The kind of an error; the HTTP status follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Invalid,
    Unauthenticated,
    Forbidden,
    NotFound,
    Conflict,
    Payment,
    Capacity,
    RateLimited,
    Unavailable,
    Internal,
}

/// An error as the caller sees it. The cause is for the log only.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: Kind,
    /// A stable code for programs.
    pub code: &'static str,
    /// For people: what happened and what to do next.
    pub message: String,
    /// The underlying error; never shown to the caller.
    #[source]
    pub cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The code for a change that lost a race.
    pub const CHANGED_MEANWHILE: &'static str = "changed_meanwhile";

    /// The code for a bucket that cannot be removed while it has open uploads.
    pub(crate) const UPLOADS_OPEN: &'static str = "uploads_open";

    /// An error without a hidden cause.
    pub fn new(kind: Kind, code: &'static str, message: impl Into<String>) -> Self {
        Error { kind, code, message: message.into(), cause: None }
    }

    /// The API key does not exist or has been revoked: 401.
    pub(crate) fn invalid_key() -> Self {
        let message =
            "the API key is not valid; set TENSORPOOL_KEY to one that an administrator of this engine gave you";
        Error::new(Kind::Unauthenticated, "invalid_key", message)
    }

    /// The user of the key has been disabled: 401.
    pub(crate) fn user_disabled() -> Self {
        let message = "this user has been disabled; ask an administrator";
        Error::new(Kind::Unauthenticated, "user_disabled", message)
    }

    /// The organization or the role of the user changed during the call: 401.
    pub(crate) fn access_changed() -> Self {
        let message = "your organization or role changed during this call; repeat it";
        Error::new(Kind::Unauthenticated, "access_changed", message)
    }

    /// The call is malformed: 400.
    pub fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Error::new(Kind::Invalid, code, message)
    }

    /// The object does not exist: 404.
    pub fn not_found(what: &str, id: &str) -> Self {
        Error::new(Kind::NotFound, "not_found", format!("{what} {} not found", quote_input(id)))
    }

    /// The object exists and belongs to another user or organization: 403.
    pub fn forbidden(what: &str, id: &str) -> Self {
        Error::new(
            Kind::Forbidden,
            "access_denied",
            format!("access to {what} {} denied: it belongs to someone else", quote_input(id)),
        )
    }

    /// The call contradicts the current state: 409.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Error::new(Kind::Conflict, code, message)
    }

    /// An internal error: 500. The cause is logged.
    pub fn internal(cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        let message = "an internal error occurred; it has been logged with this call's request_id";
        Error { cause: Some(Box::new(cause)), ..Error::new(Kind::Internal, "internal", message) }
    }
}

/// Makes caller input safe to repeat in a message: bounded and without control characters.
pub(crate) fn quote_input(text: &str) -> String {
    format!("'{}'", tarn_base::plain(text, 80))
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Error::conflict(refused.code(), refused.to_string())
    }
}

/// An error of the driver before anything was decided: 503. Its message is written for the caller.
impl From<tarn_driver::Error> for Error {
    fn from(error: tarn_driver::Error) -> Self {
        let message = format!("{error}; try again in a moment");
        Error { cause: Some(Box::new(error)), ..Error::new(Kind::Unavailable, "unavailable", message) }
    }
}

impl From<ids::Malformed> for Error {
    fn from(malformed: ids::Malformed) -> Self {
        Error::invalid("invalid_id", format!("invalid ID format: {malformed}"))
    }
}

impl From<names::BadName> for Error {
    fn from(bad: names::BadName) -> Self {
        Error::invalid("invalid_name", bad.to_string())
    }
}

/// Errors of managing object storage. Errors that only S3 calls can cause are internal here.
impl From<tarn_objects::Error> for Error {
    fn from(error: tarn_objects::Error) -> Self {
        use tarn_objects::Error as Objects;
        match error {
            Objects::NotEnabled => {
                let message = "object storage is not enabled for your organization; `object-storage enable` enables it";
                Error::new(Kind::NotFound, "object_storage_disabled", message)
            }
            Objects::Closing => Error::conflict("object_storage_closing", format!("{error}; try again in a moment")),
            Objects::HoldsObjects(count) => {
                let held = if count == 1 { "1 object".to_owned() } else { format!("{count} objects") };
                let message = format!(
                    "the buckets still hold {held}, old versions included; delete them first, or call \
                     DELETE /object-storage/disable?force=true to delete all of them"
                );
                Error::conflict("object_storage_not_empty", message)
            }
            Objects::Refused(refused) => refused.into(),
            Objects::BadBucketName(bad) => Error::invalid("invalid_bucket_name", bad.to_string()),
            Objects::BucketExists => {
                Error::conflict("bucket_exists", "your organization already has a bucket with that name")
            }
            Objects::TooManyBuckets(_) => Error::conflict("too_many_buckets", format!("{error}; delete one first")),
            Objects::BucketNotEmpty => {
                let message =
                    "the bucket is not empty; delete its objects first, old versions and delete markers included";
                Error::conflict("bucket_not_empty", message)
            }
            Objects::UploadsOpen => {
                Error::conflict(Error::UPLOADS_OPEN, format!("at present {error}; try again when they are over"))
            }
            Objects::NoSuchBucket => Error::new(Kind::NotFound, "not_found", "your organization has no such bucket"),
            Objects::Store(error) => error.into(),
            other => Error::internal(other),
        }
    }
}

impl From<tarn_store::Error> for Error {
    fn from(error: tarn_store::Error) -> Self {
        match error {
            tarn_store::Error::Conflict => {
                let message = "another call changed it at the same time; check its current state, then try again";
                Error::conflict(Error::CHANGED_MEANWHILE, message)
            }
            tarn_store::Error::Taken => Error::conflict("name_taken", "that name is taken"),
            tarn_store::Error::Unavailable(_) => {
                let message = "the database is not available at the moment; try again in a moment";
                Error { cause: Some(Box::new(error)), ..Error::new(Kind::Unavailable, "unavailable", message) }
            }
            tarn_store::Error::Schema(_) | tarn_store::Error::Corrupt(_) | tarn_store::Error::Database(_) => {
                Error::internal(error)
            }
        }
    }
}
