//! One registry, called over HTTP. No registry is trusted: every response is read with a limit, every host that it
//! leads to is checked, and its credentials stay where they belong.

use std::net::IpAddr;
use std::sync::Arc;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RANGE, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::challenge::{self, Challenge};
use super::hosts::{DOCKER, is_same_site};
use super::http_clients::{HttpClients, NoClient};
use super::responses::{RegistryError, check_response, read_body, request_error};
use crate::local::images::settings::ImageSettings;

/// The maximum size of a token response.
const MAX_TOKEN: u64 = 1 << 20;

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;

/// A client of one registry.
pub(super) struct RegistryClient {
    pub(in crate::local::images) host: String,
    base: String,
    clients: Arc<HttpClients>,
    login: Option<(String, String)>,
    token_service: Option<String>,
    /// Whether every response counts as that of a registry; only for operators, who see what is there anyway.
    is_trusted: bool,
    /// The `Authorization` header, once the registry has asked for one.
    credentials: Mutex<Option<HeaderValue>>,
}

/// Credentials for a registry.
struct Credentials {
    header: HeaderValue,
    /// Whether the registry or its token service got the login for them.
    are_of_login: bool,
}

impl RegistryClient {
    /// Creates a client of a registry.
    pub(in crate::local::images) fn new(host: &str, settings: &ImageSettings, clients: Arc<HttpClients>) -> Self {
        let known = settings.registry_settings(host);
        let is_plain = known.map_or_else(|| is_loopback(host), |known| known.plain_http);
        let address = if host == DOCKER.0 { DOCKER.1 } else { host };
        let base = format!("{}://{address}/v2", if is_plain { "http" } else { "https" });
        let login = known.and_then(|known| known.username.clone().zip(known.password.clone()));
        let token_service = known.and_then(|known| known.token_service.clone());
        let (is_trusted, credentials) = (false, Mutex::default());
        RegistryClient { host: host.to_owned(), base, clients, login, token_service, is_trusted, credentials }
    }

    /// Explains every response, whether it shows that it is a registry's or not.
    pub(super) fn trusted(self) -> Self {
        RegistryClient { is_trusted: true, ..self }
    }

    /// Requests a part of a repository, starting at a byte.
    pub(super) async fn get_part(&self, repository: &str, part: &str, from: u64) -> Result<Response, RegistryError> {
        self.get_authenticated(&format!("{repository}/{part}"), Some(repository), from).await
    }

    /// Calls the registry with the login and requests nothing in particular.
    pub(super) async fn check_login(&self) -> Result<(), RegistryError> {
        self.get_authenticated("", None, 0).await.map(drop)
    }

    /// Sends a request, and repeats it with credentials if the registry asks for them.
    async fn get_authenticated(
        &self,
        path: &str,
        repository: Option<&str>,
        from: u64,
    ) -> Result<Response, RegistryError> {
        let response = self.send_get(path, from).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return check_response(response, self.is_trusted).await;
        }
        // Credentials may expire in the middle of a pull, so they are requested again.
        let header = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let challenge = header.and_then(challenge::parse_challenge);
        let credentials = match &challenge {
            Some(Challenge::Basic) => self.basic_credentials().map(|header| Credentials { header, are_of_login: true }),
            Some(Challenge::Bearer { realm, service }) => {
                self.fetch_token(repository, realm, service.as_deref()).await?
            }
            None => None,
        };
        let Some(Credentials { header, are_of_login }) = credentials else {
            return check_response(response, self.is_trusted).await;
        };
        *self.credentials.lock().await = Some(header);
        let response = self.send_get(path, from).await?;
        // A token was issued for the login; a password is checked only here.
        let is_known = challenge != Some(Challenge::Basic) || response.status() == StatusCode::FORBIDDEN;
        check_response(response, self.is_trusted).await.map_err(|error| match error {
            RegistryError::Unauthorized if are_of_login && is_known => RegistryError::AccessDenied,
            RegistryError::Unauthorized if are_of_login => RegistryError::LoginRejected,
            other => other,
        })
    }

    async fn send_get(&self, path: &str, from: u64) -> Result<Response, RegistryError> {
        let url = parse_url(&format!("{}/{path}", self.base))?;
        let mut headers = HeaderMap::new();
        if path.contains("/manifests/") {
            headers.insert(ACCEPT, HeaderValue::from_static(super::manifest::ACCEPTED));
        }
        if from > 0 {
            let range = HeaderValue::from_str(&format!("bytes={from}-")).expect("a number is a valid header");
            headers.insert(RANGE, range);
        }
        let credentials = self.credentials.lock().await.clone();
        self.follow(url, headers, credentials).await
    }

    /// Sends a request and follows redirects. Each host on the way is checked, and only the first gets the credentials.
    async fn follow(
        &self,
        mut url: Url,
        headers: HeaderMap,
        mut credentials: Option<HeaderValue>,
    ) -> Result<Response, RegistryError> {
        let from_listed = parse_url(&self.base).is_ok_and(|base| self.clients.is_listed(&base));
        for _ in 0..=MAX_REDIRECTS {
            let client = self.clients.client_for(&url, from_listed).await.map_err(|reason| match reason {
                NoClient::NotPublic => RegistryError::NotPublic(host_and_port(&url)),
                NoClient::Failed(why) => {
                    RegistryError::Unreachable(format!("this host cannot connect to registries: {why}"))
                }
            })?;
            let mut call = client.get(url.clone()).headers(headers.clone());
            if let Some(credentials) = &credentials {
                call = call.header(AUTHORIZATION, credentials.clone());
            }
            let response = call.send().await.map_err(|error| request_error(host_and_port(&url), &error))?;
            let Some(next) = redirect_target(&response, &url)? else { return Ok(response) };
            if next.origin() != url.origin() {
                credentials = None;
            }
            url = next;
        }
        Err(RegistryError::Unexpected("it redirects too often".into()))
    }

    /// Returns the user name of the login.
    pub(super) fn login(&self) -> Option<&str> {
        self.login.as_ref().map(|(username, _)| username.as_str())
    }

    fn basic_credentials(&self) -> Option<HeaderValue> {
        let (username, password) = self.login.as_ref()?;
        let both = base64_simd::STANDARD.encode_to_string(format!("{username}:{password}"));
        secret_header(&format!("Basic {both}"))
    }

    /// Fetches a token for pulling from a repository, or for no repository. The registry names the token service, which
    /// gets the login only if it belongs to the registry, and only over a connection as secure as the registry's.
    async fn fetch_token(
        &self,
        repository: Option<&str>,
        realm: &str,
        service: Option<&str>,
    ) -> Result<Option<Credentials>, RegistryError> {
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let mut url = parse_url(realm)?;
        if self.base.starts_with("https:") && url.scheme() != "https" {
            return Err(RegistryError::Unexpected("its token service is not encrypted".into()));
        }
        if let Some(repository) = repository {
            url.query_pairs_mut().append_pair("scope", &format!("repository:{repository}:pull"));
        }
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let login = self.basic_credentials().filter(|_| self.may_get_login(&url));
        let are_of_login = login.is_some();
        let response = self.follow(url, HeaderMap::new(), login).await?;
        let is_rejected =
            matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
        if are_of_login && is_rejected {
            return Err(RegistryError::LoginRejected);
        }
        let response = check_response(response, self.is_trusted).await.map_err(|error| match error {
            RegistryError::NotFound => RegistryError::Unauthorized,
            other => other,
        })?;
        let text = read_body(response, MAX_TOKEN).await?;
        let token = serde_json::from_slice::<Token>(&text).ok().and_then(|token| token.token.or(token.access_token));
        let header = token.and_then(|token| secret_header(&format!("Bearer {token}")));
        Ok(header.map(|header| Credentials { header, are_of_login }))
    }

    /// Returns whether a token service gets the login of this registry: one on the registry's site, or one that the
    /// operator names.
    fn may_get_login(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let own = parse_url(&self.base).ok();
        let is_own = own.as_ref().and_then(Url::host_str).is_some_and(|own| is_same_site(own, host));
        let named =
            self.token_service.as_deref().and_then(|named| parse_url(&format!("{}://{named}", url.scheme())).ok());
        let may = is_own || named.is_some_and(|named| named.origin() == url.origin());
        if !may && self.login.is_some() {
            tracing::warn!(
                registry = self.host,
                token_service = host_and_port(url),
                "a login is not sent to a token service on another site; if it is trusted, set token_service for the \
                 registry in images.registries"
            );
        }
        may
    }
}

/// Returns where a response redirects to. An encrypted connection stays encrypted; a plain one may become encrypted.
fn redirect_target(response: &Response, url: &Url) -> Result<Option<Url>, RegistryError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let invalid = |_| RegistryError::Unexpected("it redirects to an address that is invalid".into());
    let next = check_url(url.join(location).map_err(invalid)?)?;
    if url.scheme() == "https" && next.scheme() != "https" {
        return Err(RegistryError::Unexpected("it redirects to an address that is not encrypted".into()));
    }
    Ok(Some(next))
}

fn parse_url(text: &str) -> Result<Url, RegistryError> {
    let invalid = |_| RegistryError::Unexpected("it names an address that is invalid".into());
    check_url(Url::parse(text).map_err(invalid)?)
}

/// Refuses URLs of other protocols, and URLs with a login, which would be sent.
fn check_url(url: Url) -> Result<Url, RegistryError> {
    let is_usable = matches!(url.scheme(), "http" | "https") && url.has_host();
    if is_usable && url.username().is_empty() && url.password().is_none() {
        Ok(url)
    } else {
        Err(RegistryError::Unexpected("it names an address that is not allowed".into()))
    }
}

/// Returns the host of a URL as it is listed in the configuration.
fn host_and_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Returns whether a registry is on this host, where unencrypted connections are customary.
pub fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::images::settings::Registry;

    #[test]
    fn only_loopback_is_plain_by_default() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["docker.io", "10.0.0.1:5000", "localhost.example", "127.0.0.1.example:80"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn login_stays_on_its_site() {
        let login = |host: &str, token_service: Option<&str>| {
            let (username, password) = (Some("anna".to_owned()), Some("hunter2".to_owned()));
            let token_service = token_service.map(ToOwned::to_owned);
            Registry { host: host.to_owned(), username, password, token_service, ..Registry::default() }
        };
        let registries =
            vec![login("docker.io", None), login("registry.example", Some("tokens.other.example.net:8443"))];
        let settings = ImageSettings { registries, ..ImageSettings::default() };
        let clients = Arc::new(HttpClients::new(&settings));
        let may = |host: &str, realm: &str| {
            let registry = RegistryClient::new(host, &settings, clients.clone());
            registry.may_get_login(&Url::parse(realm).unwrap())
        };
        assert!(may("docker.io", "https://auth.docker.io/token"));
        assert!(!may("docker.io", "https://docker.io.example/token"));
        assert!(may("registry.example", "https://tokens.other.example.net:8443/token"));
        assert!(!may("registry.example", "https://tokens.other.example.net/token"), "another port");
    }

    #[test]
    fn addresses_with_login_or_other_protocol_are_refused() {
        for wrong in ["ftp://a.example/", "https://anna@a.example/", "file:///etc/passwd", "nothing"] {
            assert!(parse_url(wrong).is_err(), "{wrong}");
        }
        assert_eq!(host_and_port(&parse_url("https://a.example:443/x").unwrap()), "a.example");
        assert_eq!(host_and_port(&parse_url("http://[::1]:80/x").unwrap()), "[::1]");
    }
}
