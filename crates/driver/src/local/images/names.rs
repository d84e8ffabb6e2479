//! The names of images, as people write them.

use tarn_model::images::Reference;
pub(super) use tarn_model::images::{digest_hex, is_digest_hex};

use crate::Error;

/// Parses a name: `debian` is `docker.io/library/debian:latest`.
pub(super) fn parse_reference(text: &str) -> Result<Reference, Error> {
    let shown = tarn_base::plain(if text.is_empty() { "nothing" } else { text }, 200);
    tarn_model::images::parse(text)
        .map_err(|why| Error::Permanent(format!("{shown} is not the name of an image: {why}")))
}

/// The exact name of an image.
pub(super) fn exact_name(reference: &Reference, digest: &str) -> String {
    format!("{}/{}@sha256:{digest}", reference.registry(), reference.repository())
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
    fn invalid_names_are_refused() {
        let upper = format!("a@sha256:{}", "A".repeat(64));
        for wrong in ["", "Debian", "a b", "../etc", "a:b:c", "http://x/y", "a@sha256:12", &upper, "a\nb"] {
            let Err(Error::Permanent(why)) = parse_reference(wrong) else { panic!("{wrong} is a name") };
            assert!(why.contains("is not the name of an image") && !why.contains('\n'), "{why}");
        }
    }
}
