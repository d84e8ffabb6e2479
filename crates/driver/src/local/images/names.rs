//! The names of images, as people are used to write them.

use oci_spec::distribution::{ParseError, Reference};

use crate::Error;

/// What the digests of images begin with.
const DIGEST: &str = "sha256:";

/// Understands a name: `debian` is `docker.io/library/debian:latest`.
pub(super) fn parse(text: &str) -> Result<Reference, Error> {
    let refuse = |why: &str| Err(Error::Permanent(format!("{} is not the name of an image: {why}", shown(text))));
    let reference = match text.parse::<Reference>() {
        Ok(reference) => reference,
        Err(ParseError::ReferenceInvalidFormat) => {
            return refuse(
                "it looks like registry/repository:tag, in small letters, as in docker.io/library/debian:12",
            );
        }
        Err(why) => return refuse(&why.to_string()),
    };
    match reference.digest() {
        Some(digest) if hex(digest).is_none() => refuse("its digest is not a SHA-256 in small hexadecimal digits"),
        _ => Ok(reference),
    }
}

/// The exact name of an image.
pub(super) fn exact(reference: &Reference, digest: &str) -> String {
    format!("{}/{}@{DIGEST}{digest}", reference.registry(), reference.repository())
}

/// The hexadecimal digits of a digest, if it is one that can be checked. They are also the name of a file.
pub(super) fn hex(digest: &str) -> Option<&str> {
    digest.strip_prefix(DIGEST).filter(|digits| is_hex(digits))
}

/// Whether these are the hexadecimal digits of a digest.
pub(super) fn is_hex(digits: &str) -> bool {
    digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// As much of a name as may be repeated.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(200).collect();
    if cut.is_empty() { "nothing".to_owned() } else { cut.escape_debug().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_people_write_them() {
        let whole = |text: &str| parse(text).unwrap().to_string();
        assert_eq!(whole("debian"), "docker.io/library/debian:latest");
        assert_eq!(whole("user/tool:1"), "docker.io/user/tool:1");
        assert_eq!(whole("127.0.0.1:5000/a/b"), "127.0.0.1:5000/a/b:latest");
        let digest = "0".repeat(64);
        let exact_name = exact(&parse("ghcr.io/a/b:c").unwrap(), &digest);
        assert_eq!(exact_name, format!("ghcr.io/a/b@sha256:{digest}"));
        assert_eq!(hex(parse(&exact_name).unwrap().digest().unwrap()), Some(digest.as_str()));
    }

    #[test]
    fn what_is_no_name_is_refused_in_words() {
        let upper = format!("a@sha256:{}", "A".repeat(64));
        for wrong in ["", "Debian", "a b", "../etc", "a:b:c", "http://x/y", "a@sha256:12", &upper, "a\nb"] {
            let Err(Error::Permanent(why)) = parse(wrong) else { panic!("{wrong} is a name") };
            assert!(why.contains("is not the name of an image") && !why.contains('\n'), "{why}");
        }
    }
}
