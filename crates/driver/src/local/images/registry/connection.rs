//! One registry, called over HTTP. No registry is trusted: every response is read with a limit.

use std::net::IpAddr;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, RANGE, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::challenge::{self, Challenge};
use super::http_clients;
use crate::local::images::settings::ImageSettings;

/// The maximum size of a token response.
const MAX_TOKEN: u64 = 1 << 20;

/// The default registry has another host than its name.
const DOCKER: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// Why a registry did not deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RegistryError {
    /// It does not respond, or reports a temporary failure.
    Unreachable(String),
    /// It requires a login, and this engine has none or cannot use it.
    Unauthorized,
    /// It rejects the login of this engine.
    LoginRejected,
    /// It accepts the login, which has no access to what was requested; many registries respond the same for what does
    /// not exist.
    AccessDenied,
    /// It does not have what was requested.
    NotFound,
    /// It responds in a way that no registry should.
    Unexpected(String),
}

/// A client of one registry.
pub(super) struct RegistryClient {
    pub(in crate::local::images) host: String,
    base: String,
    client: Client,
    login: Option<(String, String)>,
    /// The `Authorization` header, once the registry has asked for one.
    credentials: Mutex<Option<HeaderValue>>,
}

impl RegistryClient {
    /// Creates a client of a registry.
    pub(in crate::local::images) async fn new(host: &str, settings: &ImageSettings) -> Result<Self, String> {
        let known = settings.registry_settings(host);
        let is_plain = known.map_or_else(|| is_loopback(host), |known| known.plain_http);
        let client = http_clients::shared_client(is_plain, is_loopback(host)).await?;
        let address = if host == DOCKER.0 { DOCKER.1 } else { host };
        let base = format!("{}://{address}/v2", if is_plain { "http" } else { "https" });
        let login = known.and_then(|known| known.username.clone().zip(known.password.clone()));
        Ok(RegistryClient { host: host.to_owned(), base, client, login, credentials: Mutex::default() })
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
            return check_status(response);
        }
        // Credentials may expire in the middle of a pull, so they are requested again.
        let header = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let challenge = header.and_then(challenge::parse_challenge);
        let credentials = match &challenge {
            Some(Challenge::Basic) => self.basic_credentials(),
            Some(Challenge::Bearer { realm, service }) => {
                self.fetch_token(repository, realm, service.as_deref()).await?
            }
            None => None,
        };
        *self.credentials.lock().await = Some(credentials.ok_or(RegistryError::Unauthorized)?);
        let response = self.send_get(path, from).await?;
        // A token was issued for the login; a password is checked only here.
        let is_known = challenge != Some(Challenge::Basic) || response.status() == StatusCode::FORBIDDEN;
        check_status(response).map_err(|error| match error {
            RegistryError::Unauthorized if self.login.is_some() && is_known => RegistryError::AccessDenied,
            RegistryError::Unauthorized if self.login.is_some() => RegistryError::LoginRejected,
            other => other,
        })
    }

    async fn send_get(&self, path: &str, from: u64) -> Result<Response, RegistryError> {
        let mut call = self.client.get(format!("{}/{path}", self.base));
        if path.contains("/manifests/") {
            call = call.header(ACCEPT, super::manifest::ACCEPTED);
        }
        if let Some(credentials) = self.credentials.lock().await.clone() {
            call = call.header(AUTHORIZATION, credentials);
        }
        if from > 0 {
            call = call.header(RANGE, format!("bytes={from}-"));
        }
        call.send().await.map_err(|error| request_error(&error))
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

    /// Fetches a token for pulling from a repository, or for no repository. The registry names the token service, so
    /// the HTTP client ensures that the password is sent only over a connection as secure as the one to the registry.
    async fn fetch_token(
        &self,
        repository: Option<&str>,
        realm: &str,
        service: Option<&str>,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let mut call = self.client.get(realm);
        if let Some(repository) = repository {
            call = call.query(&[("scope", format!("repository:{repository}:pull"))]);
        }
        if let Some(service) = service {
            call = call.query(&[("service", service)]);
        }
        if let Some(basic) = self.basic_credentials() {
            call = call.header(AUTHORIZATION, basic);
        }
        let response = check_status(call.send().await.map_err(|error| request_error(&error))?);
        let response = response.map_err(|error| match error {
            RegistryError::Unauthorized | RegistryError::NotFound if self.login.is_some() => {
                RegistryError::LoginRejected
            }
            RegistryError::NotFound => RegistryError::Unauthorized,
            other => other,
        })?;
        let text = read_body(response, MAX_TOKEN).await?;
        let token = serde_json::from_slice::<Token>(&text).ok().and_then(|token| token.token.or(token.access_token));
        Ok(token.and_then(|token| secret_header(&format!("Bearer {token}"))))
    }
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

fn check_status(response: Response) -> Result<Response, RegistryError> {
    match response.status() {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(response),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(RegistryError::Unauthorized),
        StatusCode::NOT_FOUND => Err(RegistryError::NotFound),
        StatusCode::TOO_MANY_REQUESTS => {
            Err(RegistryError::Unreachable("it reports too many requests from this host".into()))
        }
        status if status.is_server_error() => {
            Err(RegistryError::Unreachable(format!("it responds with status {}", status.as_u16())))
        }
        status => Err(RegistryError::Unexpected(format!("status {}", status.as_u16()))),
    }
}

/// Explains a request without a response: the registry is unreachable, or redirects to an unencrypted address or in a
/// loop.
fn request_error(error: &reqwest::Error) -> RegistryError {
    if error.is_redirect() || error.is_builder() {
        return RegistryError::Unexpected(format!(
            "it redirects to an address that is not allowed ({})",
            root_cause(error)
        ));
    }
    RegistryError::Unreachable(root_cause(error))
}

/// Reads a whole response up to a maximum size.
pub(super) async fn read_body(mut response: Response, most: u64) -> Result<Vec<u8>, RegistryError> {
    let mut text = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| RegistryError::Unreachable(root_cause(&error)))? {
        text.extend_from_slice(&piece);
        if text.len() as u64 > most {
            return Err(RegistryError::Unexpected("a document that is too long".into()));
        }
    }
    Ok(text)
}

/// Returns the innermost cause, which is the most specific.
pub(in crate::local::images) fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_plain_by_default() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["docker.io", "10.0.0.1:5000", "localhost.example", "127.0.0.1.example:80"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
