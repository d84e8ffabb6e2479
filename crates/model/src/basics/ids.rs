//! Ids: a prefix that names the kind, and twelve characters of lower-case Crockford base32.
//!
//! Each kind is a type of its own, so that the id of a volume cannot be passed as the id of a cluster.

use std::fmt;
use std::str::FromStr;

use crate::Ids;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 12;

/// The text is not an id of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ids look like '{prefix}' followed by 12 characters, for example {prefix}7k2m9q4x0abc")]
pub struct Malformed {
    /// The expected kind, for a message.
    pub what: &'static str,
    pub prefix: &'static str,
}

macro_rules! id {
    ($name:ident, $prefix:literal, $what:literal) => {
        #[doc = concat!("The id of ", $what, ": `", $prefix, "…`.")]
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The prefix of every id of this kind.
            pub const PREFIX: &'static str = $prefix;

            /// Returns a new id from fresh bits.
            pub fn fresh(ids: &dyn Ids) -> Self {
                Self(format!("{}{}", $prefix, encode_base32(ids.bits())))
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Malformed;
            fn from_str(text: &str) -> Result<Self, Malformed> {
                text.to_owned().try_into()
            }
        }

        impl TryFrom<String> for $name {
            type Error = Malformed;
            fn try_from(text: String) -> Result<Self, Malformed> {
                match text.strip_prefix($prefix) {
                    Some(rest) if rest.len() == LENGTH && rest.bytes().all(is_base32) => Ok(Self(text)),
                    _ => Err(Malformed { what: $what, prefix: $prefix }),
                }
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(ClusterId, "c-", "cluster");
id!(InstanceId, "i-", "instance");
id!(VolumeId, "s-", "storage");
id!(JobId, "j-", "job");
id!(RequestId, "r-", "request");
id!(SshKeyId, "k-", "SSH key");
id!(UserId, "u-", "user");
id!(OrgId, "o-", "organization");
id!(ApiKeyId, "a-", "API key");
id!(BucketId, "b-", "bucket");
id!(VersionId, "v-", "object version");
id!(ContentId, "d-", "content");
id!(FileId, "f-", "file");

/// Returns a new API key: `tp-` and 40 characters, about 200 bits.
pub fn fresh_api_key(ids: &dyn Ids) -> String {
    let mut key = String::from("tp-");
    while key.len() < 43 {
        key.push_str(&encode_base32(ids.bits()));
    }
    key.truncate(43);
    key
}

/// Returns whether a byte is in the alphabet. Every id of every row is checked, so this does not search the alphabet.
fn is_base32(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'z') && !matches!(byte, b'i' | b'l' | b'o' | b'u')
}

/// Encodes the low 60 bits as twelve base32 characters.
fn encode_base32(bits: u64) -> String {
    (0..LENGTH).rev().map(|at| ALPHABET[(bits >> (at * 5) & 31) as usize] as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u64);
    impl Ids for Fixed {
        fn bits(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn id_parses_as_its_own_kind_only() {
        let id = ClusterId::fresh(&Fixed(0x0123_4567_89ab_cdef));
        assert_eq!(id.as_str().parse::<ClusterId>(), Ok(id.clone()));
        assert!(id.as_str().parse::<VolumeId>().is_err());
    }

    #[test]
    fn parse_refuses_malformed_ids() {
        for text in [
            "",
            "c-",
            "c-7k2m9q4x0ab",
            "c-7k2m9q4x0abcd",
            "c-7k2m9q4x0abI",
            "C-7k2m9q4x0abc",
            "c-7k2m9q4x0ab\0",
            "c-é2m9q4x0abc",
        ] {
            assert!(text.parse::<ClusterId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn is_base32_matches_alphabet() {
        assert!((0..=u8::MAX).all(|byte| is_base32(byte) == ALPHABET.contains(&byte)));
    }

    #[test]
    fn api_key_has_documented_length() {
        let key = fresh_api_key(&Fixed(7));
        assert!(key.starts_with("tp-") && key.len() == 43);
    }
}
