//! What can go wrong with buckets and objects, as far as a client decides by it.

use std::io;

use tarn_model::buckets::BadBucketName;
use tarn_model::ids::VersionId;

/// A failure of object storage.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The organization has no object storage.
    #[error("object storage is not enabled for this organization")]
    NotEnabled,
    /// It was given up and is not empty yet.
    #[error("object storage was disabled and is still being emptied")]
    Closing,
    /// It cannot be given up while it holds objects.
    #[error("the buckets still hold {0} objects")]
    HoldsObjects(u64),
    /// No bucket can have this name.
    #[error(transparent)]
    BadBucketName(#[from] BadBucketName),
    /// The organization has a bucket of that name.
    #[error("the bucket exists already")]
    BucketExists,
    /// It has as many as it may have.
    #[error("there are {0} buckets, which is the limit")]
    TooManyBuckets(u64),
    /// The bucket holds objects, versions or marks of deletions.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// Uploads were begun in the bucket that have to be given up first.
    #[error("uploads are being begun in the bucket")]
    UploadsOpen,
    /// There is no such bucket.
    #[error("the bucket does not exist")]
    NoSuchBucket,
    /// There is no such object, or it was deleted by this mark.
    #[error("the key does not exist")]
    NoSuchKey {
        /// The version of the mark of deletion that hides the object; the inner `None` is "null".
        marker: Option<Option<VersionId>>,
    },
    /// There is no such version.
    #[error("the version does not exist")]
    NoSuchVersion,
    /// The version that was asked for is the mark of a deletion.
    #[error("the version is the mark of a deletion")]
    IsMarker {
        /// Which version; `None` is "null".
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
    /// What the call asks to be so is not so.
    #[error("a condition of the call does not hold")]
    PreconditionFailed,
    /// A part that is to be used is not there, or is another one.
    #[error("part {0} is missing, or its ETag or checksum is another")]
    InvalidPart(u32),
    /// The parts are not in ascending order.
    #[error("the parts are not in ascending order")]
    InvalidPartOrder,
    /// A part that is not the last is too small.
    #[error("part {number} has {size} bytes; all but the last need 5 MiB")]
    PartTooSmall {
        /// Which part.
        number: u32,
        /// Its size.
        size: u64,
    },
    /// A part has a number out of range.
    #[error("parts have numbers from 1 to 10000")]
    BadPartNumber,
    /// The whole would be too large.
    #[error("the object is too large: {0} bytes are allowed")]
    TooLarge(u64),
    /// The checksum of the whole is not what the client says.
    #[error("the checksum does not match")]
    BadChecksum,
    /// The organization's quota does not allow it.
    #[error("there may be {quota} bytes of objects, there are {used} and this asks for {asked}")]
    QuotaExceeded {
        /// How much is allowed.
        quota: u64,
        /// How much there is.
        used: u64,
        /// How much more was asked for.
        asked: u64,
    },
    /// The disk is full.
    #[error("there is no space left for objects")]
    Full,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] tarn_store::Error),
    /// A file failed.
    #[error("a data file cannot be read or written: {0}")]
    File(io::Error),
}

impl Error {
    /// Whether a transaction that ended so was taken back for certain. Otherwise it may have been committed.
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

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;
