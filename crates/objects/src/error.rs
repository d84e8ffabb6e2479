//! Errors of object storage that a client can react to.

use std::io;

use tarn_model::buckets::BadBucketName;
use tarn_model::ids::VersionId;

/// An error of object storage.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The organization has no object storage.
    #[error("object storage is not enabled for this organization")]
    NotEnabled,
    /// Object storage was disabled and is not empty yet.
    #[error("object storage was disabled and is still being emptied")]
    Closing,
    /// Object storage cannot be disabled while it holds objects.
    #[error("the buckets still hold {0} objects")]
    HoldsObjects(u64),
    /// The access key of the caller was ended while the call was in progress.
    #[error("the access key no longer works")]
    KeyEnded,
    /// A rule refuses the change.
    #[error(transparent)]
    Refused(#[from] tarn_model::Refused),
    /// The name is not a valid bucket name.
    #[error(transparent)]
    BadBucketName(#[from] BadBucketName),
    /// The organization has a bucket of that name.
    #[error("the bucket exists already")]
    BucketExists,
    /// The organization has the maximum number of buckets.
    #[error("there are {0} buckets, which is the limit")]
    TooManyBuckets(u64),
    /// The bucket holds objects, versions or delete markers.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// The bucket has open uploads that have to be aborted first.
    #[error("uploads are in progress in the bucket")]
    UploadsOpen,
    /// Another member of the organization created the bucket.
    #[error("another member of the organization created the bucket")]
    NotYours,
    /// There is no such bucket.
    #[error("the bucket does not exist")]
    NoSuchBucket,
    /// There is no such object.
    #[error("the key does not exist")]
    NoSuchKey,
    /// A delete marker hides the object.
    #[error("the key does not exist")]
    KeyDeleted {
        /// The version of the marker; `None` is "null".
        marker: Option<VersionId>,
    },
    /// There is no such version.
    #[error("the version does not exist")]
    NoSuchVersion,
    /// The requested version is a delete marker.
    #[error("the version is a delete marker")]
    IsMarker {
        /// The version; `None` is "null".
        version: Option<VersionId>,
    },
    /// There is no such upload.
    #[error("the upload does not exist; it may have been completed or aborted")]
    NoSuchUpload,
    /// The key is empty, too long, or has a NUL.
    #[error("a key has 1 to 1024 bytes and no NUL")]
    BadKey,
    /// The key is too long.
    #[error("a key has at most 1024 bytes")]
    KeyTooLong,
    /// A condition of the call does not hold.
    #[error("a condition of the call does not hold")]
    PreconditionFailed(UnmetCondition),
    /// A listed part does not exist or differs.
    #[error("part {0} is missing, or its ETag or checksum differs")]
    InvalidPart(u32),
    /// The parts are not in ascending order.
    #[error("the parts are not in ascending order")]
    InvalidPartOrder,
    /// A part other than the last is too small.
    #[error("part {number} has {size} bytes; all but the last need 5 MiB")]
    PartTooSmall { number: u32, size: u64 },
    /// The number of a part is out of range.
    #[error("parts have numbers from 1 to 10000")]
    BadPartNumber,
    /// The object would be too large.
    #[error("the object is too large: {0} bytes are allowed")]
    TooLarge(u64),
    /// The checksum of the object is not the one that the client sent.
    #[error("the checksum does not match")]
    BadChecksum,
    /// The organization's quota does not allow the object.
    #[error("the quota is {quota} bytes of objects, {used} are in use and this asks for {asked}")]
    QuotaExceeded { quota: u64, used: u64, asked: u64 },
    /// The disk is full.
    #[error("there is no space left for objects")]
    Full,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] tarn_store::Error),
    /// A data file could not be read or written.
    #[error("a data file cannot be read or written: {0}")]
    File(io::Error),
}

/// The condition of a call that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmetCondition {
    /// The object must have a given ETag, or exist.
    Match,
    /// There must be no object.
    Absent,
    /// The object must have a given size.
    Size,
    /// The object must have a given age.
    Modified,
}

impl Error {
    /// Returns whether a transaction that ended with this error was certainly rolled back. Otherwise it may have been
    /// committed.
    pub(crate) fn is_refusal(&self) -> bool {
        use tarn_store::Error as Store;
        !matches!(self, Error::Store(Store::Unavailable(_) | Store::Database(_)))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full,
            _ => Error::File(error),
        }
    }
}

/// What functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;
