//! Names of clusters and volumes: which are valid, and how one is generated when the caller gives none.

use crate::Ids;

/// The text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// It has another form than names have.
    #[error("a name has 1 to 63 characters of a-z, 0-9 and '-', starts with a letter and does not look like an id")]
    Form,
    /// It is a verb of the API.
    #[error("the name '{0}' is reserved, because a path of the API has it in the place of a name; choose another one")]
    Reserved(&'static str),
}

/// The verbs of the API in the paths of clusters and volumes. An object with such a name, from before they were
/// reserved, is found by its id, and can be renamed.
const RESERVED: [&str; 10] =
    ["attach", "create", "detach", "edit", "info", "list", "operations", "quote", "restart", "types"];

/// Checks a new name of a cluster or a volume.
pub fn check_new(name: &str) -> Result<(), BadName> {
    check(name)?;
    RESERVED.iter().find(|verb| **verb == name).map_or(Ok(()), |verb| Err(BadName::Reserved(verb)))
}

/// Checks the form of a name.
pub fn check(name: &str) -> Result<(), BadName> {
    let mut bytes = name.bytes();
    let starts_well = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
    let continues_well = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    // A name of the form c-7k2m9q4x0abc could never be looked up: it would be read as an id.
    let looks_like_id = name.len() == 14 && name.as_bytes()[1] == b'-';
    if name.len() <= 63 && starts_well && continues_well && !looks_like_id { Ok(()) } else { Err(BadName::Form) }
}

/// Generates a name such as `brave-heron`. With `suffixed` it ends with four random characters, for when the plain one
/// is taken.
pub fn generate(ids: &dyn Ids, suffixed: bool) -> String {
    let bits = ids.bits();
    let first = ADJECTIVES[(bits % ADJECTIVES.len() as u64) as usize];
    let second = BIRDS[(bits / 1024 % BIRDS.len() as u64) as usize];
    if suffixed { format!("{first}-{second}-{:04x}", bits >> 48) } else { format!("{first}-{second}") }
}

const ADJECTIVES: [&str; 48] = [
    "able", "amber", "bold", "brave", "brisk", "calm", "clear", "clever", "cool", "copper", "crisp", "deep", "eager",
    "early", "fair", "fast", "fine", "fresh", "gentle", "glad", "golden", "grand", "green", "happy", "high", "keen",
    "kind", "light", "lively", "lucky", "mild", "neat", "noble", "proud", "quick", "quiet", "rapid", "sharp", "silent",
    "silver", "smart", "steady", "still", "sunny", "swift", "tidy", "warm", "wise",
];

const BIRDS: [&str; 48] = [
    "auk", "avocet", "bittern", "bunting", "coot", "crane", "crow", "curlew", "dipper", "dove", "duck", "dunlin",
    "eagle", "egret", "eider", "falcon", "finch", "gannet", "goose", "grebe", "gull", "harrier", "hawk", "heron",
    "hoopoe", "ibis", "jay", "kestrel", "kite", "lark", "linnet", "magpie", "martin", "merlin", "osprey", "owl",
    "petrel", "pipit", "plover", "puffin", "rail", "raven", "robin", "snipe", "stork", "swan", "tern", "wren",
];

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
    fn check_accepts_and_refuses() {
        for name in ["a", "brave-heron", "a0-", &"a".repeat(63)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in ["", "-a", "0a", "A", "a_b", "a b", "é", "a\n", "a\0", "c-7k2m9q4x0abc", &"a".repeat(64)] {
            assert_eq!(check(name), Err(BadName::Form), "{name:?}");
            assert_eq!(check_new(name), Err(BadName::Form), "{name:?}");
        }
    }

    /// A verb may be looked up as a name, but not be given as one.
    #[test]
    fn verbs_are_reserved() {
        for verb in RESERVED {
            assert_eq!((check(verb), check_new(verb)), (Ok(()), Err(BadName::Reserved(verb))));
        }
        assert_eq!(check_new("lists"), Ok(()));
    }

    proptest::proptest! {
        #[test]
        fn generated_names_are_valid(bits: u64, suffixed: bool) {
            proptest::prop_assert_eq!(check_new(&generate(&Fixed(bits), suffixed)), Ok(()));
        }
    }
}
