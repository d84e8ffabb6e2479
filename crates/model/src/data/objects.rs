//! Objects: their data and the limits of S3. This module does not know how bytes are stored or how the S3 protocol
//! works.

use serde::{Deserialize, Serialize};

use crate::Time;
use crate::ids::{BucketId, ContentId, FileId, VersionId};

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The most parts of an upload.
pub const MAX_PARTS: u32 = 10_000;

/// The smallest part, except the last.
pub const MIN_PART_BYTES: u64 = 5 << 20;

/// The largest object that is uploaded at once, and so also the largest part.
pub const MAX_PUT_BYTES: u64 = 5 << 30;

/// The largest object.
pub const MAX_OBJECT_BYTES: u64 = 5 << 40;

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub bucket: BucketId,
    /// Any text, never a path.
    pub key: String,
    /// `None` is the version that S3 calls "null".
    pub version: Option<VersionId>,
    /// Of two versions of a key, the later one has the higher number.
    pub sequence: i64,
    /// When it became visible.
    pub modified: Time,
    pub size: u64,
    /// The ETag without quotes: the MD5 of the bytes in hexadecimal, or that of the parts with their number.
    pub etag: String,
    pub details: Details,
    pub body: Body,
}

/// Where the bytes of an object are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// In the database.
    Inline(Vec<u8>),
    /// In the files of the parts of this content.
    Parts(ContentId),
}

/// What clients send with an object, and what is returned to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// Headers that are returned unchanged, such as `content-type`, by their names in lower case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The user's own metadata, by names without `x-amz-meta-`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metadata: Vec<(String, String)>,
    /// The tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<(String, String)>,
    /// The checksum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
}

/// A checksum as S3 defines it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    pub algorithm: Algorithm,
    pub scope: Scope,
    /// In base64; that of parts ends with their number.
    pub value: String,
}

/// How a checksum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    /// All there are.
    pub const ALL: [Algorithm; 5] =
        [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Sha1, Algorithm::Sha256];

    /// Returns the name that S3 and the database use.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64Nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }

    /// The reverse of `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// What a checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// All bytes.
    Full,
    /// The checksums of the parts.
    Composite,
}

impl Scope {
    /// Returns the name that S3 and the database use.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Full => "FULL_OBJECT",
            Scope::Composite => "COMPOSITE",
        }
    }

    /// The reverse of `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Scope::Full, Scope::Composite].into_iter().find(|scope| scope.name() == name)
    }
}

/// A delete marker: the key was deleted, and its versions are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub bucket: BucketId,
    pub key: String,
    /// `None` is "null".
    pub version: Option<VersionId>,
    /// As in [`Object`].
    pub sequence: i64,
    pub modified: Time,
}

/// A version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Version {
    Object(Object),
    Marker(Marker),
}

impl Version {
    /// Returns the id of the version.
    pub fn id(&self) -> Option<&VersionId> {
        match self {
            Version::Object(object) => object.version.as_ref(),
            Version::Marker(marker) => marker.version.as_ref(),
        }
    }

    /// Returns the sequence number: of two versions of a key, the later one has the higher number.
    pub fn sequence(&self) -> i64 {
        match self {
            Version::Object(object) => object.sequence,
            Version::Marker(marker) => marker.sequence,
        }
    }
}

/// What a list shows of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    pub key: String,
    /// `None` is "null".
    pub version: Option<VersionId>,
    /// As in [`Object`].
    pub sequence: i64,
    /// When it became visible.
    pub modified: Time,
    /// Size and ETag; `None` for a delete marker.
    pub object: Option<(u64, String)>,
}

/// An object that is uploaded in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Also the id of the content that it becomes.
    pub id: ContentId,
    pub bucket: BucketId,
    pub key: String,
    /// The checksum is added when the upload is complete.
    pub details: Details,
    /// The algorithm of its parts, and what the checksum of the whole covers.
    pub checksum: Option<(Algorithm, Scope)>,
    pub created: Time,
}

/// A part of an upload, or of the content that an upload became. An object that was uploaded at once has the part 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub content: ContentId,
    /// From 1.
    pub number: u32,
    pub file: FileId,
    pub size: u64,
    /// The MD5 of its bytes in hexadecimal.
    pub etag: String,
    /// The checksum of its bytes in base64.
    pub checksum: Option<String>,
    pub modified: Time,
}
