//! One registry, asked over HTTP. Whoever runs it may be anybody: nothing that it says is read without a limit.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, RANGE, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::challenges::{self, Challenge};
use super::settings::ImageSettings;

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(8);

/// No answer to a login is longer.
const MAX_TOKEN: u64 = 1 << 20;

/// The registry of names that have none is elsewhere than its name says.
const DOCKER: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// Why a registry did not give what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It does not answer, or says that it cannot now.
    Unreachable(String),
    /// It does not let this engine.
    Refused,
    /// It has no such thing.
    Missing,
    /// It answers what nobody expects.
    Strange(String),
}

/// A registry.
pub(super) struct Registry {
    /// Its name.
    pub(super) host: String,
    base: String,
    client: Client,
    login: Option<(String, String)>,
    /// What proves who asks, once that was asked for.
    proof: Mutex<Option<HeaderValue>>,
}

impl Registry {
    /// Gets ready to ask a registry.
    pub(super) fn new(host: &str, settings: &ImageSettings) -> Result<Self, Trouble> {
        let known = settings.registry(host);
        let is_here = is_loopback(host);
        let is_plain = known.map_or(is_here, |known| known.plain_http);
        // Whoever was first has chosen the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .user_agent(concat!("tarn/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECTING)
            // What was encrypted stays so, wherever the registry sends us.
            .https_only(!is_plain);
        if is_here {
            // Whoever forwards what goes out is not asked about what stays on this machine.
            client = client.no_proxy();
        }
        if is_plain {
            // Reading all certificates of the system takes longer than a whole call.
            client = client.tls_certs_only([]);
        }
        let client = client.build().map_err(|error| Trouble::Strange(reason(&error)))?;
        let place = if host == DOCKER.0 { DOCKER.1 } else { host };
        let base = format!("{}://{place}/v2", if is_plain { "http" } else { "https" });
        let login = known.and_then(|known| known.username.clone().zip(known.password.clone()));
        Ok(Registry { host: host.to_owned(), base, client, login, proof: Mutex::default() })
    }

    /// Whether a login is configured for it.
    pub(super) fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// Asks for a part of a repository, from a byte on.
    pub(super) async fn get(&self, repository: &str, part: &str, from: u64) -> Result<Response, Trouble> {
        let answer = self.ask(repository, part, from).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return judge(answer);
        }
        let header = answer.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let proof = match header.and_then(challenges::parse) {
            Some(Challenge::Basic) => self.basic(),
            Some(Challenge::Bearer { realm, service }) => self.token(repository, &realm, service.as_deref()).await?,
            None => None,
        };
        *self.proof.lock().await = Some(proof.ok_or(Trouble::Refused)?);
        judge(self.ask(repository, part, from).await?)
    }

    async fn ask(&self, repository: &str, part: &str, from: u64) -> Result<Response, Trouble> {
        let mut call = self.client.get(format!("{}/{repository}/{part}", self.base));
        if part.starts_with("manifests/") {
            call = call.header(ACCEPT, super::manifests::ACCEPTED);
        }
        if let Some(proof) = self.proof.lock().await.clone() {
            call = call.header(AUTHORIZATION, proof);
        }
        if from > 0 {
            call = call.header(RANGE, format!("bytes={from}-"));
        }
        call.send().await.map_err(|error| Trouble::Unreachable(reason(&error)))
    }

    fn basic(&self) -> Option<HeaderValue> {
        let (username, password) = self.login.as_ref()?;
        let both = base64_simd::STANDARD.encode_to_string(format!("{username}:{password}"));
        secret(&format!("Basic {both}"))
    }

    /// Gets a token that lets this engine pull from a repository. The registry says where, so the password goes there only
    /// over a connection that is no less safe than the one to the registry itself: the client sees to that.
    async fn token(
        &self,
        repository: &str,
        realm: &str,
        service: Option<&str>,
    ) -> Result<Option<HeaderValue>, Trouble> {
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let scope = format!("repository:{repository}:pull");
        let mut call = self.client.get(realm).query(&[("scope", scope.as_str())]);
        if let Some(service) = service {
            call = call.query(&[("service", service)]);
        }
        if let Some(basic) = self.basic() {
            call = call.header(AUTHORIZATION, basic);
        }
        let answer = judge(call.send().await.map_err(|error| Trouble::Unreachable(reason(&error)))?);
        let answer = answer.map_err(|trouble| if trouble == Trouble::Missing { Trouble::Refused } else { trouble })?;
        let text = read(answer, MAX_TOKEN).await?;
        let token = serde_json::from_slice::<Token>(&text).ok().and_then(|token| token.token.or(token.access_token));
        Ok(token.and_then(|token| secret(&format!("Bearer {token}"))))
    }
}

/// Whether a registry is on this machine, where people are used to speak without encryption.
pub fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn judge(answer: Response) -> Result<Response, Trouble> {
    match answer.status() {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(answer),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Trouble::Refused),
        StatusCode::NOT_FOUND => Err(Trouble::Missing),
        StatusCode::TOO_MANY_REQUESTS => Err(Trouble::Unreachable("it says that this machine asks too often".into())),
        status if status.is_server_error() => Err(Trouble::Unreachable(format!("it answers {}", status.as_u16()))),
        status => Err(Trouble::Strange(format!("status {}", status.as_u16()))),
    }
}

/// Reads a whole answer that must not be longer.
pub(super) async fn read(mut answer: Response, most: u64) -> Result<Vec<u8>, Trouble> {
    let mut text = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(|error| Trouble::Unreachable(reason(&error)))? {
        text.extend_from_slice(&piece);
        if text.len() as u64 > most {
            return Err(Trouble::Strange("a document without end".into()));
        }
    }
    Ok(text)
}

/// The innermost cause, which says most in the fewest words.
pub(super) fn reason(error: &reqwest::Error) -> String {
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
    fn only_what_is_on_this_machine_may_be_unencrypted_unasked() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["docker.io", "10.0.0.1:5000", "localhost.example", "127.0.0.1.example:80"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
