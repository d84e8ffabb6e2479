//! Which hosts may be called, and how: hosts that the operator lists, wherever they are, and all others only at public
//! addresses. The same rule holds for registries, for what they redirect to, and for their token services.

use std::net::IpAddr;

use reqwest::Url;

use super::addresses::is_public;
use crate::local::images::settings::ImageSettings;
use crate::local::network::Subnet;

/// The default registry has another host than its name.
pub(super) const DOCKER: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// The hosts that the operator lists, and the addresses that nobody else may name.
pub(super) struct HostRules {
    listed: Vec<ListedHost>,
    pub(super) denied: Vec<Subnet>,
}

/// A host that the operator lists.
#[derive(Debug, PartialEq, Eq)]
struct ListedHost {
    name: String,
    port: Port,
}

/// The ports of a listed host.
#[derive(Debug, PartialEq, Eq)]
enum Port {
    /// The port of the protocol.
    Default,
    Number(u16),
    All,
}

/// How a URL relates to the rules.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HostKind {
    /// The operator lists it; any address is allowed.
    Listed,
    /// A public address, written as a number.
    PublicAddress,
    /// A name, whose addresses have to be public.
    Name,
}

impl HostRules {
    pub(super) fn new(settings: &ImageSettings) -> Self {
        let registries = settings.registries.iter();
        let named = registries.flat_map(|one| [&one.host].into_iter().chain(&one.mirrors).chain(&one.token_service));
        let listed = named.chain(&settings.private_registries).filter_map(|text| parse_listed(text)).collect();
        HostRules { listed, denied: settings.denied.clone() }
    }

    /// Returns whether the operator lists the host of a URL.
    pub(super) fn is_listed(&self, url: &Url) -> bool {
        url.host_str().is_some_and(|host| self.listed.iter().any(|listed| listed.matches(host, url)))
    }

    /// Classifies a URL; `None` if its host is at an address that is neither public nor listed. Only a listed registry
    /// may lead to other listed hosts: `from_listed` says whether it is one. A tenant chooses other registries, and so
    /// where they lead.
    pub(super) fn classify(&self, url: &Url, from_listed: bool) -> Option<HostKind> {
        if from_listed && self.is_listed(url) {
            return Some(HostKind::Listed);
        }
        match literal_address(url) {
            Some(address) => is_public(address, &self.denied).then_some(HostKind::PublicAddress),
            None => Some(HostKind::Name),
        }
    }
}

impl ListedHost {
    fn matches(&self, host: &str, url: &Url) -> bool {
        let is_port = match self.port {
            Port::Default => url.port().is_none(),
            Port::Number(port) => url.port_or_known_default() == Some(port),
            Port::All => true,
        };
        is_port && self.name == host
    }
}

/// Parses a host as it is written in image names, in the form that URLs have.
fn parse_listed(text: &str) -> Option<ListedHost> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, "*")) => (name, Port::All),
        Some((name, port)) => (name, Port::Number(port.parse().ok()?)),
        None => (text, Port::Default),
    };
    let name = if name.eq_ignore_ascii_case(DOCKER.0) { DOCKER.1 } else { name };
    Some(ListedHost { name: Url::parse(&format!("http://{name}")).ok()?.host_str()?.to_owned(), port })
}

/// Returns the address of a URL with a number instead of a name, in any notation.
pub(super) fn literal_address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Returns whether two hosts belong to one site: they have the same registrable domain, or are the same.
pub(super) fn is_same_site(one: &str, other: &str) -> bool {
    site(one) == site(other)
}

/// Returns the registrable domain of a host. An address, and a name that is itself a suffix, is its own site.
fn site(host: &str) -> &str {
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let host = host.trim_end_matches('.');
    if is_address { host } else { psl::domain_str(host).unwrap_or(host) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::images::settings::Registry;

    fn rules() -> HostRules {
        let named = Registry {
            host: "Registry.lan:5000".into(),
            mirrors: vec!["10.0.0.1".into()],
            token_service: Some("auth.lan".into()),
            ..Registry::default()
        };
        let docker = Registry { host: "docker.io".into(), ..Registry::default() };
        let private_registries = vec!["127.0.0.1:*".into(), "localhost:443".into()];
        let registries = vec![named, docker];
        HostRules::new(&ImageSettings { registries, private_registries, ..ImageSettings::default() })
    }

    #[test]
    fn listed_hosts_are_matched_with_their_port() {
        let kind = |url: &str| rules().classify(&Url::parse(url).unwrap(), true);
        for listed in [
            "http://registry.lan:5000/v2/",
            "https://10.0.0.1/",
            "https://AUTH.lan/token",
            "http://127.0.0.1:1/",
            "http://0x7f.1:8080/",
            "https://localhost/",
            "https://registry-1.docker.io/v2/",
        ] {
            assert_eq!(kind(listed), Some(HostKind::Listed), "{listed}");
            let url = Url::parse(listed).unwrap();
            assert_ne!(rules().classify(&url, false), Some(HostKind::Listed), "a stranger leads to it: {listed}");
        }
        for name in
            ["https://registry.lan/", "https://registry.lan:5001/", "https://localhost:444/", "http://localhost/"]
        {
            assert_eq!(kind(name), Some(HostKind::Name), "{name}: its addresses decide");
        }
        for refused in ["https://10.0.0.1:8443/", "https://127.0.0.2/", "https://2130706434/", "https://[::1]/"] {
            assert_eq!(kind(refused), None, "{refused}");
        }
        assert_eq!(kind("https://1.1.1.1/"), Some(HostKind::PublicAddress));
    }

    #[test]
    fn site_is_registrable_domain() {
        for (one, other, expected) in [
            ("registry-1.docker.io", "auth.docker.io", true),
            ("registry.gitlab.com", "gitlab.com", true),
            ("registry.example.co.uk", "auth.example.co.uk", true),
            ("one.co.uk", "other.co.uk", false),
            ("one.github.io", "other.github.io", false),
            ("docker.io", "docker.io.example", false),
            ("evildocker.io", "docker.io", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "126.0.0.1", false),
            ("[::1]", "[::2]", false),
            ("localhost", "localhost", true),
            ("localhost", "other", false),
        ] {
            assert_eq!(is_same_site(one, other), expected, "{one} {other}");
        }
    }
}
