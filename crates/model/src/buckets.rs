//! Buckets: what they may be called, and whether they keep what is overwritten.

use crate::Time;
use crate::ids::{BucketId, OrgId};

/// A bucket of an organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The id.
    pub id: BucketId,
    /// Whose it is. Names are unique within the organization only.
    pub org: OrgId,
    /// The name.
    pub name: String,
    /// Whether it keeps what is overwritten.
    pub versioning: Versioning,
    /// When it was made.
    pub created: Time,
}

/// Whether a bucket keeps what is overwritten and deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versioning {
    /// It never has.
    #[default]
    Off,
    /// It does.
    Enabled,
    /// It keeps what it had, and nothing new.
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

    /// What goes by this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Versioning::Off, Versioning::Enabled, Versioning::Suspended].into_iter().find(|state| state.name() == name)
    }
}

/// A name that a bucket cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bucket's name has 3 to 63 characters of a-z, 0-9, '.' and '-', begins and ends with a letter or a digit, has no two \
     dots in a row and does not look like an IP address; it does not begin with xn--, sthree- or amzn-s3-demo-, nor end with \
     -s3alias, --ol-s3, .mrap or --x-s3"
)]
pub struct BadBucketName;

/// Checks a name against S3's rules.
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

/// S3 keeps these for itself, and clients treat them in their own way.
const RESERVED_PREFIXES: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
const RESERVED_SUFFIXES: [&str; 4] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_s3() {
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
        }
    }

    #[test]
    fn states_have_names() {
        for state in [Versioning::Off, Versioning::Enabled, Versioning::Suspended] {
            assert_eq!(Versioning::from_name(state.name()), Some(state));
        }
        assert_eq!(Versioning::from_name("off"), None);
    }
}
