//! The settings for images.

use std::fmt;

use crate::local::network::Subnet;

/// The settings for images.
#[derive(Clone, Debug)]
pub struct ImageSettings {
    /// The space that all unpacked layers may use together.
    pub cache_bytes: u64,
    /// Registries that need settings.
    pub registries: Vec<Registry>,
    /// More hosts that may be called at any address, as in image names; `host:*` means all ports. All others, and what
    /// they lead to, may be called at public addresses only.
    pub private_registries: Vec<String>,
    /// Networks that count as private.
    pub denied: Vec<Subnet>,
}

/// The settings of a registry.
#[derive(Clone, Default)]
pub struct Registry {
    /// The host in image names, with a port if it has one: `docker.io`, `registry.example:5000`.
    pub host: String,
    /// The user to log in as; absent without a login.
    pub username: Option<String>,
    /// A password or token. It is never printed.
    pub password: Option<String>,
    /// Registries that are tried first, in order, for the same repositories.
    pub mirrors: Vec<String>,
    /// Whether it uses HTTP without encryption.
    pub plain_http: bool,
    /// The host of its token service, if that is on another site than the registry and gets the login all the same.
    pub token_service: Option<String>,
}

impl Default for ImageSettings {
    fn default() -> Self {
        let (registries, private_registries, denied) = Default::default();
        ImageSettings { cache_bytes: 50_000_000_000, registries, private_registries, denied }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("host", &self.host)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("mirrors", &self.mirrors)
            .field("plain_http", &self.plain_http)
            .field("token_service", &self.token_service)
            .finish()
    }
}

impl ImageSettings {
    /// Returns the settings of a registry.
    pub(super) fn registry_settings(&self, host: &str) -> Option<&Registry> {
        self.registries.iter().find(|registry| registry.host.eq_ignore_ascii_case(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_never_printed() {
        let password = Some("hunter2".to_owned());
        let registry = Registry { host: "a".into(), username: Some("b".into()), password, ..Registry::default() };
        let shown = format!("{:?}", ImageSettings { registries: vec![registry], ..ImageSettings::default() });
        assert!(shown.contains("\"b\"") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn registry_hosts_are_case_insensitive() {
        let registries = vec![Registry { host: "GHCR.io".into(), ..Registry::default() }];
        let settings = ImageSettings { registries, ..ImageSettings::default() };
        assert!(settings.registry_settings("ghcr.io").is_some() && settings.registry_settings("ghcr.io:443").is_none());
    }
}
