//! Names of container images, as users and registries write them: `[registry/]repository[:tag][@digest]`.

/// The name of the built-in image, which is in no registry.
pub const HOST: &str = "host";

/// The longest reference: room for a repository, a tag and a digest.
pub const MAX_LENGTH: usize = 512;

/// The registry of names without one, its other names, and the owner of its images without one.
const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_REGISTRY_ALIASES: &[&str] = &["index.docker.io", "registry-1.docker.io"];
const DEFAULT_OWNER: &str = "library";

/// The longest name of a repository, with its registry, that registries accept.
const MAX_NAME: usize = 255;

/// The longest tag.
const MAX_TAG: usize = 128;

/// Checks a reference; the error says what is wrong with it.
pub fn check(reference: &str) -> Result<(), String> {
    if reference.is_empty() {
        return Err("it is empty".into());
    }
    if reference.len() > MAX_LENGTH {
        return Err(format!("it is longer than {MAX_LENGTH} characters"));
    }
    if let Some(strange) = reference.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(format!("it has {strange:?} in it"));
    }
    let (name, digest) = match reference.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (reference, None),
    };
    digest.map_or(Ok(()), check_digest)?;
    let (name, tag) = split_tag(name);
    tag.map_or(Ok(()), check_tag)?;
    if name.len() > MAX_NAME {
        return Err(format!("the name of its repository is longer than {MAX_NAME} characters"));
    }
    let repository = match name.split_once('/') {
        Some((registry, rest)) if is_registry(registry) => {
            check_registry(registry)?;
            rest
        }
        _ => name,
    };
    repository.split('/').try_for_each(check_component)
}

/// Returns whether a reference is allowed. `allowed` lists registries, or registries with the beginning of a
/// repository, such as `ghcr.io/team`; without a list every registry is allowed.
pub fn is_allowed(reference: &str, allowed: Option<&[String]>) -> bool {
    let Some(allowed) = allowed else { return true };
    let name = full_name(reference);
    allowed.iter().any(|place| {
        let place = with_canonical_registry(place);
        // `ghcr.io/team` does not allow `ghcr.io/teammates`.
        name.strip_prefix(&place).is_some_and(|rest| rest.starts_with('/') || rest.is_empty())
    })
}

/// Checks an entry of the list of allowed registries; the error says what is wrong with it.
pub fn check_place(place: &str) -> Result<(), String> {
    let (registry, repository) = place.split_once('/').map_or((place, None), |(head, rest)| (head, Some(rest)));
    if !is_registry(registry) {
        return Err(format!("'{registry}' is not a registry such as docker.io or registry.example:5000"));
    }
    check_registry(registry)?;
    repository.map_or(Ok(()), |repository| repository.split('/').try_for_each(check_component))
}

/// Returns the registry and the repository of a reference in full.
fn full_name(reference: &str) -> String {
    let (name, _digest) = reference.split_once('@').unwrap_or((reference, ""));
    let (name, _tag) = split_tag(name);
    let has_registry = name.split_once('/').is_some_and(|(first, _)| is_registry(first));
    let name = if has_registry { with_canonical_registry(name) } else { format!("{DEFAULT_REGISTRY}/{name}") };
    match name.strip_prefix(DEFAULT_REGISTRY).and_then(|rest| rest.strip_prefix('/')) {
        Some(repository) if !repository.contains('/') => format!("{DEFAULT_REGISTRY}/{DEFAULT_OWNER}/{repository}"),
        _ => name,
    }
}

/// Replaces the registry of a name by its canonical name: host names are lower case.
fn with_canonical_registry(name: &str) -> String {
    let (registry, rest) = name.split_at(name.find('/').unwrap_or(name.len()));
    let registry = registry.to_ascii_lowercase();
    let registry = if DEFAULT_REGISTRY_ALIASES.contains(&registry.as_str()) { DEFAULT_REGISTRY } else { &registry };
    format!("{registry}{rest}")
}

/// Splits off the tag: a colon after the last slash begins it; an earlier colon belongs to the port of the registry.
fn split_tag(name: &str) -> (&str, Option<&str>) {
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

fn check_registry(registry: &str) -> Result<(), String> {
    if ["https:", "http:"].iter().any(|scheme| registry.eq_ignore_ascii_case(scheme)) {
        return Err(format!(
            "leave out {registry}//: a reference begins with the name of its registry, such as docker.io"
        ));
    }
    if registry.contains('[') {
        return Err(format!("'{registry}' is an IPv6 address, which image names cannot contain; use a host name"));
    }
    let (host, port) = registry.split_once(':').map_or((registry, None), |(host, port)| (host, Some(port)));
    let is_label = |label: &str| {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !label.is_empty() && label.bytes().all(good) && !label.starts_with('-') && !label.ends_with('-')
    };
    if !host.split('.').all(is_label) {
        return Err(format!("'{registry}' is not a registry: a host name has letters, digits, dots and dashes"));
    }
    let is_port =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    if port.is_some_and(|port| !is_port(port)) {
        return Err(format!("'{registry}' is not a registry: a port is a number from 1 to 65535"));
    }
    Ok(())
}

/// Lower-case letters and digits, with `.`, `_`, `__` or dashes between them.
fn check_component(component: &str) -> Result<(), String> {
    if component.is_empty() {
        return Err("a part of its repository is empty".into());
    }
    if component.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(format!("'{component}' has capital letters, which repositories cannot have"));
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if let Some(strange) = component.bytes().find(|b| !plain(*b) && !b"._-".contains(b)) {
        return Err(format!("'{component}' has '{}' in it", char::from(strange)));
    }
    let is_separator = |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|b| b == b'-');
    let ends_well = component.starts_with(|c: char| plain(c as u8)) && component.ends_with(|c: char| plain(c as u8));
    if !ends_well || !component.split(|c: char| plain(c as u8)).all(is_separator) {
        return Err(format!("'{component}' has separators where letters or digits belong"));
    }
    Ok(())
}

fn check_tag(tag: &str) -> Result<(), String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let begins_well = tag.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !begins_well || tag.len() > MAX_TAG || !tag.bytes().all(good) {
        return Err(format!("'{tag}' is not a tag: a tag has up to {MAX_TAG} letters, digits, '.', '_' and '-'"));
    }
    Ok(())
}

fn check_digest(digest: &str) -> Result<(), String> {
    let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match digest.split_once(':') {
        Some(("sha256", hex)) if hex.len() == 64 && is_hex(hex) => Ok(()),
        Some(("sha256", _)) => Err("its digest is not 'sha256:' and 64 hexadecimal digits".into()),
        _ => Err("its digest is not of sha256".into()),
    }
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
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn is_allowed_follows_list() {
        let allowed = |reference: &str, places: &[&str]| {
            let places: Vec<String> = places.iter().map(ToString::to_string).collect();
            is_allowed(reference, Some(&places))
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
        assert!(!allowed("debian", &[]) && is_allowed("debian", None));
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
            ("a//b", "empty"),
            ("/a", "empty"),
            ("a/", "empty"),
            ("a:", "not a tag"),
            ("a:b:c", "not a tag"),
            ("a:-b", "not a tag"),
            ("a/../b", "separators"),
            ("../a", "not a registry"),
            ("-a", "separators"),
            ("a..b", "separators"),
            ("a___b", "separators"),
            ("a;b", "';' in it"),
            ("a.b:x/c", "port"),
            ("a.b:0/c", "port"),
            ("a.b:99999/c", "port"),
            ("a_b.c/d", "not a registry"),
            ("[::1]:5000/a", "IPv6"),
            ("[::1]/a", "IPv6"),
            ("::1/a", "not a registry"),
            ("a@", "digest"),
            ("a@sha256:12", "64 hexadecimal"),
            ("a@sha512:12", "not of sha256"),
            ("a@b@c", "digest"),
            ("https://a.b/c", "leave out https://"),
            ("HTTP://a.b:5000/c:1", "leave out HTTP://"),
        ] {
            let said = check(bad).expect_err(bad);
            assert!(said.contains(why), "{bad}: {said}");
        }
    }
}
