//! Objects: what is known of one, and what its key may be. How bytes are kept and how S3 is spoken is not known here.

use serde::{Deserialize, Serialize};

use crate::Time;
use crate::ids::{BucketId, ContentId, FileId, VersionId};

/// How long a key may be, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// How many parts an upload may have.
pub const MAX_PARTS: u32 = 10_000;

/// How small a part may be that is not the last.
pub const MIN_PART_BYTES: u64 = 5 << 20;

/// How large an object may be that comes in one piece, and so also a part.
pub const MAX_PUT_BYTES: u64 = 5 << 30;

/// How large an object may be at all.
pub const MAX_OBJECT_BYTES: u64 = 5 << 40;

/// An object as it is at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where it is.
    pub bucket: BucketId,
    /// Its name: any text, never a path.
    pub key: String,
    /// Which version it is; `None` is the one that S3 calls "null".
    pub version: Option<VersionId>,
    /// Of two versions of a key, the later one has the higher number.
    pub sequence: i64,
    /// When it became visible.
    pub modified: Time,
    /// How many bytes it has.
    pub size: u64,
    /// Its ETag, without quotes: the MD5 of the bytes in hexadecimal, or that of the parts with their number.
    pub etag: String,
    /// What else is known of it.
    pub details: Details,
    /// Where its bytes are.
    pub body: Body,
}

/// Where the bytes of an object are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Here.
    Inline(Vec<u8>),
    /// In the files of the parts of this content.
    Parts(ContentId),
}

/// What clients say of an object, and what is said back to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// Headers that are given back as they came, such as `content-type`, by their names in lower case.
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

/// A checksum as S3 knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// How it was computed.
    pub algorithm: Algorithm,
    /// Of what it was computed.
    pub scope: Scope,
    /// The value in base64; that of parts ends with their number.
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

    /// The name that S3 and the database give it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64Nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }

    /// What goes by this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// Of what a checksum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Of all bytes.
    Full,
    /// Of the checksums of the parts.
    Composite,
}

impl Scope {
    /// The name that S3 and the database give it.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Full => "FULL_OBJECT",
            Scope::Composite => "COMPOSITE",
        }
    }

    /// What goes by this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Scope::Full, Scope::Composite].into_iter().find(|scope| scope.name() == name)
    }
}

/// That a key was deleted, while its versions were kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Where.
    pub bucket: BucketId,
    /// Which key.
    pub key: String,
    /// Which version this is; `None` is "null".
    pub version: Option<VersionId>,
    /// As that of an object.
    pub sequence: i64,
    /// When.
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
    /// Which version it is.
    pub fn id(&self) -> Option<&VersionId> {
        match self {
            Version::Object(object) => object.version.as_ref(),
            Version::Marker(marker) => marker.version.as_ref(),
        }
    }

    /// Of two versions of a key, the later one has the higher number.
    pub fn sequence(&self) -> i64 {
        match self {
            Version::Object(object) => object.sequence,
            Version::Marker(marker) => marker.sequence,
        }
    }
}

/// What lists tell of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The key.
    pub key: String,
    /// Which version; `None` is "null".
    pub version: Option<VersionId>,
    /// As that of an object.
    pub sequence: i64,
    /// When it became visible.
    pub modified: Time,
    /// Its size and ETag; `None` for a marker.
    pub object: Option<(u64, String)>,
}

/// An object that arrives in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Its id, which is also that of the content it becomes.
    pub id: ContentId,
    /// Where to.
    pub bucket: BucketId,
    /// The key it will have.
    pub key: String,
    /// What is known of it already; the checksum comes when it is complete.
    pub details: Details,
    /// Which checksum its parts have, and of what the whole will have one.
    pub checksum: Option<(Algorithm, Scope)>,
    /// When it began.
    pub created: Time,
}

/// A part of an upload, or of the content that an upload became. An object that came in one piece has the part 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Of what.
    pub content: ContentId,
    /// Which one, from 1.
    pub number: u32,
    /// Its bytes.
    pub file: FileId,
    /// How many there are.
    pub size: u64,
    /// Their MD5 in hexadecimal.
    pub etag: String,
    /// Their checksum in base64.
    pub checksum: Option<String>,
    /// When it arrived.
    pub modified: Time,
}
