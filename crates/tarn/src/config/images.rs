//! The `[images]` section: the size of the image cache, and the registries.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};
use tarn_driver::local::{ImageSettings, Registry, is_loopback};

use super::Config;
use crate::failure::{Failure, Result};

/// A larger number is a mistake, and its sums would overflow.
const MAX_GB: u64 = 1_000_000;

/// The registry of image names without one, and its other names.
const DOCKER: &str = "docker.io";
const ALSO_DOCKER: &[&str] = &["index.docker.io", "registry-1.docker.io"];

/// The `[images]` section.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Images {
    cache_gb: u64,
    /// Registries, optionally with the beginning of a repository; when absent, everything is allowed.
    pub(super) allowed_registries: Option<Vec<String>>,
    registry_auth_file: Option<PathBuf>,
    /// Hosts that may be called at private addresses, besides those that other keys name.
    private_registries: Vec<String>,
    registries: Vec<RegistryDefinition>,
}

/// An entry of `[[images.registries]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RegistryDefinition {
    host: String,
    username: Option<String>,
    password: Option<Secret>,
    #[serde(default)]
    mirrors: Vec<String>,
    /// Whether to use HTTP; when absent, only for registries on this host.
    plain_http: Option<bool>,
    /// The host of a token service on another site that gets the login.
    token_service: Option<String>,
}

/// A text that is never shown.
#[derive(Clone, Deserialize)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str("(hidden)")
    }
}

impl Default for Images {
    fn default() -> Self {
        let (allowed_registries, registry_auth_file, private_registries, registries) = Default::default();
        Images { cache_gb: 50, allowed_registries, registry_auth_file, private_registries, registries }
    }
}

impl Images {
    pub(super) fn check(&self) -> Result<()> {
        if !(1..=MAX_GB).contains(&self.cache_gb) {
            return Err(Failure(format!("images.cache_gb must be at least 1 and at most {MAX_GB}")));
        }
        for place in self.allowed_registries.iter().flatten() {
            tarn_model::images::check_place(place)
                .map_err(|why| Failure(format!("images.allowed_registries: '{place}' cannot be allowed: {why}")))?;
        }
        for host in &self.private_registries {
            check_host("images.private_registries", host.strip_suffix(":*").unwrap_or(host))?;
        }
        for registry in &self.registries {
            for host in std::iter::once(&registry.host).chain(&registry.mirrors).chain(&registry.token_service) {
                check_host("images.registries", host)?;
            }
            if registry.username.is_some() != registry.password.is_some() {
                let host = &registry.host;
                return Err(Failure(format!("images.registries: {host} needs both username and password, or neither")));
            }
        }
        Ok(())
    }
}

impl Config {
    /// Whether images may come from docker.io, or from some part of it.
    pub(crate) fn allows_docker(&self) -> bool {
        let is_docker = |place: &String| canonical_host(place.split('/').next().unwrap_or(place)) == DOCKER;
        self.images.allowed_registries.as_ref().is_none_or(|places| places.iter().any(is_docker))
    }

    /// The image settings of the driver. Every registry that the configuration names is the operator's choice, and may
    /// be called at a private address. Logins in the configuration take precedence over those in Docker's file.
    pub(crate) fn images(&self) -> Result<ImageSettings> {
        let own = &self.images;
        let mut registries: Vec<Registry> = own.registries.iter().map(RegistryDefinition::registry).collect();
        if let Some(path) = &own.registry_auth_file {
            for (host, username, password) in read_auth_file(path)? {
                let (username, password) = (Some(username), Some(password));
                match registries.iter_mut().find(|known| known.host == host) {
                    Some(known) if known.username.is_some() => {}
                    Some(known) => (known.username, known.password) = (username, password),
                    None => {
                        let plain_http = is_loopback(&host);
                        registries.push(Registry { host, username, password, plain_http, ..Registry::default() });
                    }
                }
            }
        }
        let allowed = own.allowed_registries.iter().flatten();
        let allowed = allowed.map(|place| canonical_host(place.split('/').next().unwrap_or(place)));
        let private_registries = own.private_registries.iter().cloned().chain(allowed).collect();
        let (cache_bytes, denied) = (own.cache_gb * 1_000_000_000, self.network.deny.clone());
        Ok(ImageSettings { cache_bytes, registries, private_registries, denied })
    }
}

impl RegistryDefinition {
    fn registry(&self) -> Registry {
        Registry {
            host: canonical_host(&self.host),
            username: self.username.clone(),
            password: self.password.as_ref().map(|secret| secret.0.clone()),
            mirrors: self.mirrors.clone(),
            plain_http: self.plain_http.unwrap_or_else(|| is_loopback(&self.host)),
            token_service: self.token_service.clone(),
        }
    }
}

/// Refuses what cannot be the host in an image name, with a port or without.
fn check_host(key: &str, host: &str) -> Result<()> {
    let (name, port) = host.split_once(':').unwrap_or((host, "443"));
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    if is_name && port.parse::<u16>().is_ok() {
        return Ok(());
    }
    Err(Failure(format!("{key}: '{host}' must be the name of a registry, such as docker.io or registry.example:5000")))
}

/// Reads the logins in a file that `docker login` or `podman login` wrote.
fn read_auth_file(path: &Path) -> Result<Vec<(String, String, String)>> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        auths: BTreeMap<String, Login>,
    }
    #[derive(Deserialize)]
    struct Login {
        auth: Option<String>,
    }
    let shown = path.display();
    let text = std::fs::read(path)
        .map_err(|e| Failure::with_cause(format!("cannot read images.registry_auth_file {shown}"), e))?;
    // The error of the parser might contain a password.
    let file: File = serde_json::from_slice(&text).map_err(|_| {
        Failure(format!("images.registry_auth_file {shown} is not in the format that `docker login` writes"))
    })?;
    let login = |(name, login): (String, Login)| {
        let decoded = base64_simd::STANDARD.decode_to_vec(login.auth?).ok()?;
        let (username, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
        let Some(host) = registry_host(&name) else {
            tracing::warn!(
                name,
                "ignoring a login for a part of a registry; only logins for whole registries are supported"
            );
            return None;
        };
        Some((canonical_host(host), username.to_owned(), password.to_owned()))
    };
    Ok(file.auths.into_iter().filter_map(login).collect())
}

/// The host of a registry, without the scheme and path that some tools write; `None` for a part of a registry, which
/// `podman login` can write.
fn registry_host(name: &str) -> Option<&str> {
    let name = name.split_once("://").map_or(name, |(_, rest)| rest);
    let (host, path) = name.split_once('/').unwrap_or((name, ""));
    matches!(path.trim_end_matches('/'), "" | "v1" | "v2").then_some(host)
}

/// The canonical name of a registry, in lower case.
fn canonical_host(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    if ALSO_DOCKER.contains(&host.as_str()) { DOCKER.to_owned() } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn logins_of_both_files_are_merged_and_hidden() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        let auth = |pair: &str| base64_simd::STANDARD.encode_to_string(pair);
        let text = format!(
            r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{}"}},"https://a.example:5000/v2/":{{"auth":"{}"}},"helped.example":{{}},"QUAY.io":{{"auth":"{}"}},"quay.io/org":{{"auth":"{}"}}}}}}"#,
            auth("anna:hunter:2"),
            auth("bert:other"),
            auth("dora:whole"),
            auth("emil:part")
        );
        std::fs::write(&path, text).unwrap();
        let text = format!(
            "[images]\ncache_gb = 3\nregistry_auth_file = '{}'\n[[images.registries]]\nhost = 'Index.docker.io'\nmirrors = ['m:1']\n\
             [[images.registries]]\nhost = 'a.example:5000'\nusername = 'cleo'\npassword = 'geheim'",
            path.display()
        );
        let config = config(&text);
        config.images.check().unwrap();
        let settings = config.images().unwrap();
        let login = |host: &str| {
            let found = settings.registries.iter().find(|registry| registry.host == host).unwrap();
            (found.username.clone().unwrap(), found.password.clone().unwrap())
        };
        assert_eq!(login("docker.io"), ("anna".into(), "hunter:2".into()));
        assert_eq!(login("a.example:5000"), ("cleo".into(), "geheim".into()));
        assert_eq!(login("quay.io"), ("dora".into(), "whole".into()), "a part of it is not all of it");
        assert!(settings.registries.iter().all(|registry| !registry.plain_http));
        assert!(
            self::config("[[images.registries]]\nhost = '127.0.0.1:5000'").images().unwrap().registries[0].plain_http
        );
        assert_eq!((settings.cache_bytes, settings.registries.len()), (3_000_000_000, 3));
        let shown = format!("{config:?} {settings:?}");
        assert!(!shown.contains("hunter") && !shown.contains("geheim"), "{shown}");
    }

    #[test]
    fn named_registries_may_be_private() {
        let text = "[images]\nprivate_registries = ['10.0.0.1:*', 'store.lan:9000']\n\
                    allowed_registries = ['docker.io/library', 'registry.lan:5000/team']\n\
                    [network]\ndeny = ['192.0.2.0/24']";
        let config = config(text);
        config.images.check().unwrap();
        let settings = config.images().unwrap();
        assert_eq!(settings.private_registries, ["10.0.0.1:*", "store.lan:9000", "docker.io", "registry.lan:5000"]);
        assert_eq!(settings.denied, config.network.deny);
    }

    #[test]
    fn invalid_values_are_refused() {
        for text in [
            "[images]\ncache_gb = 0",
            "[images]\nallowed_registries = ['https://docker.io']",
            "[images]\nallowed_registries = ['team']",
            "[[images.registries]]\nhost = 'https://docker.io'",
            "[[images.registries]]\nhost = 'a'\nusername = 'b'",
            "[[images.registries]]\nhost = 'a'\nmirrors = ['b/c']",
            "[[images.registries]]\nhost = 'a:b'",
            "[[images.registries]]\nhost = 'a'\ntoken_service = 'https://b/token'",
            "[images]\nprivate_registries = ['http://127.0.0.1:5000']",
            "[images]\nprivate_registries = ['*']",
            "[images]\nprivate_registries = ['10.0.0.0/8']",
        ] {
            assert!(config(text).images.check().is_err(), "{text}");
        }
        assert!(config("[images]\nregistry_auth_file = '/nowhere/config.json'").images().is_err());
        for (text, is_allowed) in [("", true), ("[]", false), ("['quay.io']", false), ("['docker.io/library']", true)] {
            let text = if text.is_empty() { String::new() } else { format!("[images]\nallowed_registries = {text}") };
            assert_eq!(config(&text).allows_docker(), is_allowed, "{text}");
        }
    }
}
