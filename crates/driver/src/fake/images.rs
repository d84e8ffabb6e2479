//! Images of the fake: every name has one, with a digest that depends only on the name.

use crate::Error;

/// References with this prefix fail permanently, for tests of failing pulls.
const FAULTY: &str = "fault.invalid/";

/// Returns the exact name of an image. An exact name stays as it is.
pub(super) fn exact_image_name(reference: &str) -> Result<String, Error> {
    if reference.starts_with(FAULTY) {
        return Err(Error::Permanent(format!("{reference} could not be pulled: there is no such registry")));
    }
    if reference.contains("@sha256:") {
        return Ok(reference.to_owned());
    }
    let digest = blake3::hash(reference.as_bytes()).to_hex();
    let slash = reference.rfind('/').map_or(0, |at| at + 1);
    // A colon before the last slash is the port of a registry.
    let tag = reference[slash..].find(':').map_or(reference.len(), |at| slash + at);
    Ok(format!("{}@sha256:{digest}", &reference[..tag]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_only_on_the_name() {
        let exact = exact_image_name("127.0.0.1:5000/a/b:1").unwrap();
        assert!(exact.starts_with("127.0.0.1:5000/a/b@sha256:") && exact.len() == 26 + 64, "{exact}");
        assert_eq!(exact_image_name("127.0.0.1:5000/a/b:1").unwrap(), exact);
        assert_ne!(exact_image_name("127.0.0.1:5000/a/b:2").unwrap(), exact);
        assert_eq!(exact_image_name(&exact).unwrap(), exact);
        assert!(matches!(exact_image_name("fault.invalid/a"), Err(Error::Permanent(_))));
    }
}
