//! Names of container images, as users and registries write them: `[registry/]repository[:tag][@digest]`.
//!
//! The grammar is `oci-spec`'s; [`parse`] has what we refuse in addition.

pub use oci_spec::distribution::Reference;

use oci_spec::distribution::ParseError;

/// The name of the built-in image, which is in no registry.
pub const HOST: &str = "host";

/// The longest reference: room for a repository, a tag and a digest.
pub const MAX_LENGTH: usize = 512;

/// The registry of names without one, its address, which is used as another name, and the owner of its images without
/// one.
const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_REGISTRY_ALIASES: &[&str] = &["index.docker.io", "registry-1.docker.io"];
const DEFAULT_OWNER: &str = "library";

/// The longest name of a repository, with its registry, that registries accept.
const MAX_NAME: usize = 255;

/// Parses a reference that a user wrote; the error says what is wrong with it.
pub fn check(text: &str) -> Result<Reference, String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if text.len() > MAX_LENGTH {
        return Err(format!("it is longer than {MAX_LENGTH} characters"));
    }
    let reference = parse(text)?;
    if split_tag(text).0.len() > MAX_NAME { Err(too_long()) } else { Ok(reference) }
}

/// Parses a reference: `debian` is `docker.io/library/debian:latest`. Everything that registries accept is allowed.
pub fn parse(text: &str) -> Result<Reference, String> {
    if let Some(strange) = text.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(format!("it has {strange:?} in it"));
    }
    if text.split_once('@').is_some_and(|(_, digest)| digest_hex(digest).is_none()) {
        return Err("its digest is not 'sha256:' and 64 hexadecimal digits".into());
    }
    let registry = text.split_once('/').map_or("", |(first, _)| first);
    let registry = if is_registry(registry) { registry } else { "" };
    check_registry(registry)?;
    // Host names are case-insensitive, so the settings of a registry apply however its host is written.
    let normal = format!("{}{}", registry.to_ascii_lowercase(), &text[registry.len()..]);
    match normal.parse::<Reference>() {
        Err(ParseError::NameTooLong) => Err(too_long()),
        // The grammar mistakes such a part of a repository for a host name.
        Ok(reference) if !reference.repository().bytes().any(|byte| byte.is_ascii_uppercase()) => Ok(reference),
        _ => Err(explain(&normal)),
    }
}

/// Returns the hexadecimal digits of a SHA-256 digest. They are also a file name.
pub fn digest_hex(digest: &str) -> Option<&str> {
    digest.strip_prefix("sha256:").filter(|digits| is_digest_hex(digits))
}

/// Returns whether these are the hexadecimal digits of a digest.
pub fn is_digest_hex(digits: &str) -> bool {
    digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns whether a reference is allowed. `allowed` lists registries, or registries with the beginning of a
/// repository, such as `ghcr.io/team`; without a list every registry is allowed.
pub fn is_allowed(reference: &Reference, allowed: Option<&[String]>) -> bool {
    let Some(allowed) = allowed else { return true };
    let (registry, repository) = (canonical_registry(reference.registry()), reference.repository());
    let has_owner = registry != DEFAULT_REGISTRY || repository.contains('/');
    let owner = if has_owner { String::new() } else { format!("{DEFAULT_OWNER}/") };
    let name = format!("{registry}/{owner}{repository}");
    allowed.iter().any(|place| {
        let (registry, rest) = place.split_at(place.find('/').unwrap_or(place.len()));
        let place = format!("{}{rest}", canonical_registry(registry));
        // `ghcr.io/team` does not allow `ghcr.io/teammates`.
        name.strip_prefix(&place).is_some_and(|rest| rest.starts_with('/') || rest.is_empty())
    })
}

/// Checks an entry of the list of allowed registries; the error says what is wrong with it.
pub fn check_place(place: &str) -> Result<(), String> {
    let registry = place.split_once('/').map_or(place, |(registry, _)| registry);
    if !is_registry(registry) {
        return Err(format!("'{registry}' is not a registry such as docker.io or registry.example:5000"));
    }
    parse(&format!("{place}/any")).map(drop)
}

/// Returns the canonical name of a registry: host names are lower case.
fn canonical_registry(registry: &str) -> String {
    let registry = registry.to_ascii_lowercase();
    if DEFAULT_REGISTRY_ALIASES.contains(&registry.as_str()) { DEFAULT_REGISTRY.to_owned() } else { registry }
}

/// Splits off the tag and the digest: a colon after the last slash begins a tag; an earlier one belongs to the port.
fn split_tag(text: &str) -> (&str, Option<&str>) {
    let name = text.split_once('@').map_or(text, |(name, _)| name);
    let last = name.rfind('/').map_or(0, |at| at + 1);
    match name[last..].split_once(':') {
        Some((component, tag)) => (&name[..last + component.len()], Some(tag)),
        None => (name, None),
    }
}

/// Returns whether the first part of a name is a registry: it looks like a host name. Otherwise it belongs to the
/// repository.
fn is_registry(part: &str) -> bool {
    part.contains(['.', ':', '[']) || part == "localhost"
}

/// Refuses what the grammar accepts as a registry, and explains some of what it refuses.
fn check_registry(registry: &str) -> Result<(), String> {
    if ["https:", "http:"].iter().any(|scheme| registry.eq_ignore_ascii_case(scheme)) {
        return Err(format!(
            "leave out {registry}//: a reference begins with the name of its registry, such as docker.io"
        ));
    }
    if registry.contains('[') {
        return Err(format!("'{registry}' is an IPv6 address, which image names cannot contain; use a host name"));
    }
    if registry.contains('_') {
        return Err(format!("'{registry}' is not a registry: a host name has letters, digits, dots and dashes"));
    }
    let is_port =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    if registry.split_once(':').is_some_and(|(_, port)| !is_port(port)) {
        return Err(format!("'{registry}' is not a registry: a port is a number from 1 to 65535"));
    }
    Ok(())
}

/// Says what the grammar does not accept, by what it would accept.
fn explain(text: &str) -> String {
    let is_valid = |text: &str| text.parse::<Reference>().is_ok();
    match split_tag(text) {
        (name, Some(tag)) if is_valid(name) && !is_valid(&format!("a:{tag}")) => {
            format!("'{tag}' is not a tag: a tag has up to 128 letters, digits, '.', '_' and '-'")
        }
        (name, _) if is_valid(&name.to_ascii_lowercase()) => {
            "its repository has capital letters, which repositories cannot have".into()
        }
        _ => "it must look like registry/repository:tag, with letters and digits around every '.', '_' or '-'".into(),
    }
}

fn too_long() -> String {
    format!("the name of its repository is longer than {MAX_NAME} characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_references_are_valid() {
        let digest = format!("debian@sha256:{}", "0a".repeat(32));
        for good in [
            "debian",
            "debian:12",
            "library/debian:12-slim",
            "docker.io/library/debian",
            "ghcr.io/a/b/c_d/e__f/g---h/i.j:V1.2_x-y",
            "localhost/a",
            "localhost:5000/a:b",
            "127.0.0.1:5000/a/b:1",
            "Registry.example/a",
            &digest,
            &digest.replace("debian", "127.0.0.1:1/debian:12"),
        ] {
            assert!(check(good).is_ok(), "{good}: {:?}", check(good));
        }
    }

    #[test]
    fn is_allowed_follows_list() {
        let allowed = |reference: &str, places: &[&str]| {
            let places: Vec<String> = places.iter().map(ToString::to_string).collect();
            is_allowed(&check(reference).unwrap(), Some(&places))
        };
        let digest = format!("@sha256:{}", "0a".repeat(32));
        for (reference, place) in [
            ("debian", "docker.io"),
            ("debian:12", "docker.io/library"),
            ("index.docker.io/debian", "docker.io/library/debian"),
            ("user/tool", "index.docker.io/user"),
            ("debian", "registry-1.docker.io"),
            ("registry-1.docker.io/library/debian", "docker.io"),
            ("GHCR.io/team/app", "ghcr.io/team"),
            ("ghcr.io/team/app", "GHCR.io"),
            ("127.0.0.1:5000/a:1", "127.0.0.1:5000"),
            (&format!("ghcr.io/team{digest}"), "ghcr.io/team"),
        ] {
            assert!(allowed(reference, &["quay.io", place]), "{reference} by {place}");
        }
        for (reference, place) in [
            ("debian", "ghcr.io"),
            ("user/tool", "docker.io/library"),
            ("ghcr.io/teammates/app", "ghcr.io/team"),
            ("ghcr.io.example/team/app", "ghcr.io"),
            ("127.0.0.1:5000/a", "127.0.0.1"),
            ("127.0.0.1:50001/a", "127.0.0.1:5000"),
            ("docker.io.example/docker.io/a", "docker.io"),
        ] {
            assert!(!allowed(reference, &[place]), "{reference} by {place}");
        }
        assert!(!allowed("debian", &[]) && is_allowed(&check("debian").unwrap(), None));
        assert!(check_place("docker.io").is_ok() && check_place("ghcr.io/team/a").is_ok());
        for wrong in ["", "team", "https://docker.io", "docker.io/", "ghcr.io/*", "a.b:x", "[::1]:5000"] {
            assert!(check_place(wrong).is_err(), "{wrong}");
        }
        assert!(check_place("https://docker.io").is_err_and(|why| why.starts_with("leave out https://")));
    }

    #[test]
    fn check_names_the_problem() {
        let long = "a".repeat(MAX_LENGTH + 1);
        for (bad, why) in [
            ("", "empty"),
            (long.as_str(), "longer than 512"),
            (&long[..300], "longer than 255"),
            ("a b", "' ' in it"),
            ("ä", "in it"),
            ("a\nb", "'\\n' in it"),
            ("a\0", "in it"),
            ("Debian", "capital letters"),
            ("Registry/a", "capital letters"),
            ("a//b", "look like"),
            ("/a", "look like"),
            ("a/", "look like"),
            ("a:", "not a tag"),
            ("a:b:c", "not a tag"),
            ("a:-b", "not a tag"),
            ("a/../b", "look like"),
            ("../a", "look like"),
            ("-a", "look like"),
            ("a..b", "look like"),
            ("a___b", "look like"),
            ("a;b", "look like"),
            ("a.b:x/c", "port"),
            ("a.b:0/c", "port"),
            ("a.b:99999/c", "port"),
            ("a_b.c/d", "not a registry"),
            ("[::1]:5000/a", "IPv6"),
            ("[::1]/a", "IPv6"),
            ("::1/a", "not a registry"),
            ("a@", "digest"),
            ("a@sha256:12", "64 hexadecimal"),
            ("a@sha512:12", "sha256"),
            ("a@b@c", "digest"),
            ("https://a.b/c", "leave out https://"),
            ("HTTP://a.b:5000/c:1", "leave out HTTP://"),
        ] {
            let said = check(bad).expect_err(bad);
            assert!(said.contains(why), "{bad}: {said}");
        }
    }
    /// What `oci-spec` accepts and we refuse, and the other way round: an upgrade that changes the grammar is noticed.
    #[test]
    fn grammar_differs_as_expected() {
        let (upper, long) = (format!("a@sha256:{}", "A".repeat(64)), format!("a@sha512:{}", "0".repeat(128)));
        let qualified = format!("registry.example/{}", "a".repeat(250));
        for laxer in ["Registry/a", "a_b.c/d", "a.b:0/c", "a.b:99999/c", "a:\u{e4}", &upper, &long, &qualified] {
            assert!(laxer.parse::<Reference>().is_ok() && check(laxer).is_err(), "{laxer}");
        }
        // The engine's own exact names have their registry, also where a user left it out.
        assert!(parse(&qualified).is_ok());
        // The grammar counts the owner that it adds, so these names could never be pulled.
        assert!(check(&"a".repeat(247)).is_ok());
        assert!(check(&"a".repeat(248)).is_err_and(|why| why.contains("longer than 255")));
    }
}
