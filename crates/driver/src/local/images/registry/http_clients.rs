//! The HTTP clients for registries. Reading the certificates of the host takes longer than a whole call, so all pulls
//! share them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url, redirect};
use tokio::net::lookup_host;
use tokio::sync::OnceCell;

use super::addresses::is_public;
use super::hosts::{HostKind, HostRules, literal_address};
use crate::local::images::settings::ImageSettings;
use crate::local::network::Subnet;

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The rules about hosts, and the clients that keep to them.
pub(in crate::local::images) struct HttpClients {
    rules: HostRules,
    proxies: Matcher,
    /// Each client, for encrypted and for plain calls.
    clients: [[OnceCell<Client>; 2]; 3],
}

/// How a client connects.
#[derive(Clone, Copy)]
enum Path {
    /// To any address.
    Direct,
    /// To any address, by the proxy of the environment if there is one.
    ByProxy,
    /// To public addresses only. The addresses that are checked are those that are connected to.
    PublicOnly,
}

/// Why there is no client for a URL.
#[derive(Debug)]
pub(super) enum NoClient {
    /// The host is neither listed nor at a public address.
    NotPublic,
    /// No client can be made on this host.
    Failed(String),
}

impl HttpClients {
    pub(in crate::local::images) fn new(settings: &ImageSettings) -> Self {
        HttpClients { rules: HostRules::new(settings), proxies: Matcher::from_system(), clients: Default::default() }
    }

    /// Returns whether the operator lists the host of a URL.
    pub(super) fn is_listed(&self, url: &Url) -> bool {
        self.rules.is_listed(url)
    }

    /// Returns a client that may call a URL. It follows no redirects, because each has to be checked. `from_listed`
    /// says whether the registry that led to the URL is listed.
    pub(super) async fn client_for(&self, url: &Url, from_listed: bool) -> Result<Client, NoClient> {
        let path = match self.rules.classify(url, from_listed).ok_or(NoClient::NotPublic)? {
            // A proxy for outgoing traffic is not used for this host itself.
            HostKind::Listed if is_here(url) => Path::Direct,
            HostKind::Listed | HostKind::PublicAddress => Path::ByProxy,
            HostKind::Name if self.has_proxy(url) => {
                self.check_name_for_proxy(url).await?;
                Path::ByProxy
            }
            HostKind::Name => Path::PublicOnly,
        };
        let is_plain = url.scheme() == "http";
        let denied: Arc<[Subnet]> = self.rules.denied.as_slice().into();
        let make = || async {
            // Reading the certificates blocks.
            let made = tokio::task::spawn_blocking(move || build_client(path, is_plain, denied)).await;
            made.map_err(|error| error.to_string())?.map_err(|error| super::responses::root_cause(&error))
        };
        let client = self.clients[path as usize][usize::from(is_plain)].get_or_try_init(make).await;
        client.cloned().map_err(NoClient::Failed)
    }

    fn has_proxy(&self, url: &Url) -> bool {
        url.as_str().parse::<http::Uri>().is_ok_and(|uri| self.proxies.intercept(&uri).is_some())
    }

    /// Refuses a name that has a private address here. A name that only the proxy can resolve is up to the proxy.
    async fn check_name_for_proxy(&self, url: &Url) -> Result<(), NoClient> {
        let Ok(found) = lookup_host((url.host_str().unwrap_or_default(), 0)).await else { return Ok(()) };
        let mut found = found.peekable();
        let is_unknown = found.peek().is_none();
        if is_unknown || found.all(|address| is_public(address.ip(), &self.rules.denied)) {
            Ok(())
        } else {
            Err(NoClient::NotPublic)
        }
    }
}

/// Returns whether a URL leads to this host.
fn is_here(url: &Url) -> bool {
    url.host_str() == Some("localhost") || literal_address(url).is_some_and(|address| address.is_loopback())
}

fn build_client(path: Path, is_plain: bool, denied: Arc<[Subnet]>) -> reqwest::Result<Client> {
    // An earlier call has installed the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = || {
        let client = Client::builder()
            .user_agent(concat!("tarn/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::none());
        match path {
            Path::ByProxy => client,
            Path::Direct => client.no_proxy(),
            Path::PublicOnly => client.no_proxy().dns_resolver(PublicResolver { denied: denied.clone() }),
        }
    };
    match client().build() {
        // A host without certificates can still call plain registries.
        Err(_) if is_plain => client().tls_certs_only([]).build(),
        built => built,
    }
}

/// Resolves names to their public addresses. The client connects to what this returns and does not resolve again, so a
/// name that changes its addresses meanwhile leads nowhere else.
struct PublicResolver {
    denied: Arc<[Subnet]>,
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let denied = self.denied.clone();
        Box::pin(async move {
            let found = lookup_host((name.as_str(), 0)).await?;
            let public: Vec<_> = found.filter(|address| is_public(address.ip(), &denied)).collect();
            if public.is_empty() {
                return Err(NotPublic.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// A name has no public address.
#[derive(Debug)]
pub(super) struct NotPublic;

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it has no public address")
    }
}

impl std::error::Error for NotPublic {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn name_of_loopback_is_not_resolved() {
        let resolver = PublicResolver { denied: Arc::new([]) };
        let refused = resolver.resolve("localhost".parse().unwrap()).await;
        assert!(refused.err().is_some_and(|error| error.is::<NotPublic>()));
    }

    #[tokio::test]
    async fn private_address_has_no_client() {
        let clients = HttpClients::new(&ImageSettings::default());
        let refused = clients.client_for(&Url::parse("https://169.254.169.254/latest").unwrap(), true).await;
        assert!(matches!(refused, Err(NoClient::NotPublic)), "{refused:?}");
    }
}
