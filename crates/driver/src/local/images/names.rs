//! The names of images, as people write them.

use oci_spec::distribution::{ParseError, Reference};

use crate::Error;

/// The prefix of digests.
const DIGEST: &str = "sha256:";

/// Parses a name: `debian` is `docker.io/library/debian:latest`.
pub(super) fn parse_reference(text: &str) -> Result<Reference, Error> {
    let shown = tarn_base::plain(if text.is_empty() { "nothing" } else { text }, 200);
    let refuse = |why: &str| Err(Error::Permanent(format!("{shown} is not the name of an image: {why}")));
    // Host names are case-insensitive, so the settings of a registry apply however its host is written.
    let host = text.split_once('/').map_or("", |(first, _)| first);
    let host = if host.contains(['.', ':']) { host } else { "" };
    let reference = match format!("{}{}", host.to_ascii_lowercase(), &text[host.len()..]).parse::<Reference>() {
        Ok(reference) => reference,
        Err(ParseError::ReferenceInvalidFormat) => {
            return refuse(
                "it looks like registry/repository:tag, in small letters, as in docker.io/library/debian:12",
            );
        }
        Err(why) => return refuse(&why.to_string()),
    };
    match reference.digest() {
        Some(digest) if digest_hex(digest).is_none() => {
            refuse("its digest is not a SHA-256 in small hexadecimal digits")
        }
        _ => Ok(reference),
    }
}

/// The exact name of an image.
pub(super) fn exact_name(reference: &Reference, digest: &str) -> String {
    format!("{}/{}@{DIGEST}{digest}", reference.registry(), reference.repository())
}

/// Returns the hexadecimal digits of a SHA-256 digest. They are also a file name.
pub(super) fn digest_hex(digest: &str) -> Option<&str> {
    digest.strip_prefix(DIGEST).filter(|digits| is_digest_hex(digits))
}

/// Returns whether these are the hexadecimal digits of a digest.
pub(super) fn is_digest_hex(digits: &str) -> bool {
    digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_expanded() {
        let whole = |text: &str| parse_reference(text).unwrap().to_string();
        assert_eq!(whole("debian"), "docker.io/library/debian:latest");
        assert_eq!(whole("user/tool:1"), "docker.io/user/tool:1");
        assert_eq!(whole("127.0.0.1:5000/a/b"), "127.0.0.1:5000/a/b:latest");
        assert_eq!(whole("GHCR.io/a"), "ghcr.io/a:latest");
        assert_eq!(whole("index.Docker.io/a"), "docker.io/library/a:latest");
        let digest = "0".repeat(64);
        let name = exact_name(&parse_reference("ghcr.io/a/b:c").unwrap(), &digest);
        assert_eq!(name, format!("ghcr.io/a/b@sha256:{digest}"));
        assert_eq!(digest_hex(parse_reference(&name).unwrap().digest().unwrap()), Some(digest.as_str()));
    }

    #[test]
    fn names_accepted_by_the_api_are_parsed() {
        let digest = format!("@sha256:{}", "0a".repeat(32));
        for host in
            ["", "localhost/", "localhost:5000/", "127.0.0.1:5000/", "Registry.example/", "a-b.c:65535/", "[::1]:5000/"]
        {
            for path in ["a", "a/b", "a/b/c_d/e__f/g---h/i.j", "0", "A", "a__b", "a___b", "a.-b"] {
                for end in ["", ":1", ":V1.2_x-y", &digest, &format!(":1{digest}"), ":", "@sha256:0a"] {
                    let name = format!("{host}{path}{end}");
                    let taken = tarn_model::images::check(&name);
                    assert!(taken.is_err() || parse_reference(&name).is_ok(), "{name}: {:?}", parse_reference(&name));
                }
            }
        }
    }

    #[test]
    fn invalid_names_are_refused() {
        let upper = format!("a@sha256:{}", "A".repeat(64));
        for wrong in ["", "Debian", "a b", "../etc", "a:b:c", "http://x/y", "a@sha256:12", &upper, "a\nb"] {
            let Err(Error::Permanent(why)) = parse_reference(wrong) else { panic!("{wrong} is a name") };
            assert!(why.contains("is not the name of an image") && !why.contains('\n'), "{why}");
        }
    }
}
