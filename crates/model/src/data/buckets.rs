//! Buckets: their names, and whether they keep the versions that are overwritten.

use crate::Time;
use crate::ids::{BucketId, OrgId, UserId};

/// A bucket of an organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub id: BucketId,
    /// Names are unique within the organization only.
    pub org: OrgId,
    /// The creator; unknown for older buckets, and where a key stands for the organization.
    pub creator: Option<UserId>,
    pub name: String,
    /// Whether it keeps overwritten versions.
    pub versioning: Versioning,
    pub created: Time,
}

/// Whether a bucket keeps overwritten and deleted versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versioning {
    /// Versioning was never enabled.
    #[default]
    Off,
    Enabled,
    /// It keeps the versions that it has and adds no new ones.
    Suspended,
}

impl Versioning {
    /// The name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Versioning::Off => "OFF",
            Versioning::Enabled => "ENABLED",
            Versioning::Suspended => "SUSPENDED",
        }
    }

    /// Returns the state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Versioning::Off, Versioning::Enabled, Versioning::Suspended].into_iter().find(|state| state.name() == name)
    }
}

/// The name is not valid for a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bucket's name has 3 to 63 characters of a-z, 0-9, '.' and '-', begins and ends with a letter or a digit, as does each \
     part between two dots, and does not look like an IP address; it does not begin with xn--, sthree- or amzn-s3-demo-, nor \
     end with -s3alias, --ol-s3, .mrap or --x-s3"
)]
pub struct BadBucketName;

/// Checks the name of a new bucket: its labels, the parts between dots, begin and end with a letter or a digit.
pub fn check_new_name(name: &str) -> Result<(), BadBucketName> {
    check_name(name)?;
    let is_label = |label: &str| !label.starts_with('-') && !label.ends_with('-');
    if name.split('.').all(is_label) { Ok(()) } else { Err(BadBucketName) }
}

/// Checks the name of a bucket that may exist. Older versions did not check labels, and their buckets stay usable.
pub fn check_name(name: &str) -> Result<(), BadBucketName> {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (first, last) = (name.bytes().next().unwrap_or(0), name.bytes().next_back().unwrap_or(0));
    let fits = (3..=63).contains(&name.len())
        && edge(first)
        && edge(last)
        && name.bytes().all(|byte| edge(byte) || byte == b'.' || byte == b'-')
        && !name.contains("..")
        && name.parse::<std::net::Ipv4Addr>().is_err()
        && RESERVED_PREFIXES.iter().all(|prefix| !name.starts_with(prefix))
        && RESERVED_SUFFIXES.iter().all(|suffix| !name.ends_with(suffix));
    if fits { Ok(()) } else { Err(BadBucketName) }
}

/// S3 reserves these, and clients treat them specially.
const RESERVED_PREFIXES: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
const RESERVED_SUFFIXES: [&str; 4] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_follow_s3_rules() {
        let longest = "a".repeat(63);
        for name in ["abc", "my.bucket-1", "123", "1.2.3.4.5", "a-b", &longest] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let too_long = "a".repeat(64);
        for name in [
            "",
            "ab",
            "Abc",
            "a_b",
            "-abc",
            "abc-",
            ".abc",
            "abc.",
            "a..b",
            "192.168.5.4",
            "a b",
            "a/b",
            "ä-b",
            "xn--abc",
            "abc-s3alias",
            &too_long,
        ] {
            assert_eq!(check_name(name), Err(BadBucketName), "{name}");
            assert_eq!(check_new_name(name), Err(BadBucketName), "{name}");
        }
    }

    #[test]
    fn labels_of_new_names_are_checked() {
        for name in ["foo.bar", "foo.b-r", "f-o.bar"] {
            assert_eq!(check_new_name(name), Ok(()), "{name}");
        }
        for name in ["foo.-bar", "foo-.bar", "a.b-.c", "foo.-.bar"] {
            assert_eq!((check_new_name(name), check_name(name)), (Err(BadBucketName), Ok(())), "{name}");
        }
    }

    #[test]
    fn versioning_names_parse_back() {
        for state in [Versioning::Off, Versioning::Enabled, Versioning::Suspended] {
            assert_eq!(Versioning::from_name(state.name()), Some(state));
        }
        assert_eq!(Versioning::from_name("off"), None);
    }
}
