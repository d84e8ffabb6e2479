//! One registry, asked over HTTP. Whoever runs it may be anybody: nothing that it says is read without a limit.

use std::net::IpAddr;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, RANGE, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::challenge::{self, Challenge};
use super::http_clients;
use crate::local::images::settings::ImageSettings;

/// No answer to a login is longer.
const MAX_TOKEN: u64 = 1 << 20;

/// The registry of names that have none is elsewhere than its name says.
const DOCKER: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// Why a registry did not give what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It does not answer, or says that it cannot now.
    Unreachable(String),
    /// It does not let this engine, which has no login there or could use none.
    Closed,
    /// It does not know the login that this engine has for it.
    LoginRefused,
    /// It knows this engine's login, which does not open what was asked for; many say the same of what does not exist.
    NotForLogin,
    /// It has no such thing.
    Missing,
    /// It answers what nobody expects.
    Strange(String),
}

/// A registry.
pub(in crate::local::images) struct Registry {
    /// Its name.
    pub(in crate::local::images) host: String,
    base: String,
    client: Client,
    login: Option<(String, String)>,
    /// What proves who asks, once that was asked for.
    proof: Mutex<Option<HeaderValue>>,
}

impl Registry {
    /// Gets ready to ask a registry.
    pub(in crate::local::images) async fn new(host: &str, settings: &ImageSettings) -> Result<Self, String> {
        let known = settings.registry(host);
        let is_plain = known.map_or_else(|| is_loopback(host), |known| known.plain_http);
        let client = http_clients::get(is_plain, is_loopback(host)).await?;
        let place = if host == DOCKER.0 { DOCKER.1 } else { host };
        let base = format!("{}://{place}/v2", if is_plain { "http" } else { "https" });
        let login = known.and_then(|known| known.username.clone().zip(known.password.clone()));
        Ok(Registry { host: host.to_owned(), base, client, login, proof: Mutex::default() })
    }

    /// Asks for a part of a repository, from a byte on.
    pub(in crate::local::images) async fn get(
        &self,
        repository: &str,
        part: &str,
        from: u64,
    ) -> Result<Response, Trouble> {
        self.open(&format!("{repository}/{part}"), Some(repository), from).await
    }

    /// Asks for nothing in particular, as who this engine is there.
    pub(in crate::local::images) async fn greet(&self) -> Result<(), Trouble> {
        self.open("", None, 0).await.map(drop)
    }

    /// Asks for something, and once more with what proves who asks, if the registry wants to know.
    async fn open(&self, path: &str, repository: Option<&str>, from: u64) -> Result<Response, Trouble> {
        let answer = self.ask(path, from).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return judge(answer);
        }
        // What was good until now may have passed in the middle of a pull, so that it is asked for anew.
        let header = answer.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let challenge = header.and_then(challenge::parse);
        let proof = match &challenge {
            Some(Challenge::Basic) => self.basic(),
            Some(Challenge::Bearer { realm, service }) => self.token(repository, realm, service.as_deref()).await?,
            None => None,
        };
        *self.proof.lock().await = Some(proof.ok_or(Trouble::Closed)?);
        let answer = self.ask(path, from).await?;
        // A token was given for the login; a password is judged here only.
        let is_known = challenge != Some(Challenge::Basic) || answer.status() == StatusCode::FORBIDDEN;
        judge(answer).map_err(|trouble| match trouble {
            Trouble::Closed if self.login.is_some() && is_known => Trouble::NotForLogin,
            Trouble::Closed if self.login.is_some() => Trouble::LoginRefused,
            other => other,
        })
    }

    async fn ask(&self, path: &str, from: u64) -> Result<Response, Trouble> {
        let mut call = self.client.get(format!("{}/{path}", self.base));
        if path.contains("/manifests/") {
            call = call.header(ACCEPT, super::manifest::ACCEPTED);
        }
        if let Some(proof) = self.proof.lock().await.clone() {
            call = call.header(AUTHORIZATION, proof);
        }
        if from > 0 {
            call = call.header(RANGE, format!("bytes={from}-"));
        }
        call.send().await.map_err(|error| unsent(&error))
    }

    /// Who this engine is there.
    pub(super) fn login(&self) -> Option<&str> {
        self.login.as_ref().map(|(username, _)| username.as_str())
    }

    fn basic(&self) -> Option<HeaderValue> {
        let (username, password) = self.login.as_ref()?;
        let both = base64_simd::STANDARD.encode_to_string(format!("{username}:{password}"));
        secret(&format!("Basic {both}"))
    }

    /// Gets a token that lets this engine pull from a repository, or in at all. The registry says where, so the password goes there only
    /// over a connection that is no less safe than the one to the registry itself: the client sees to that.
    async fn token(
        &self,
        repository: Option<&str>,
        realm: &str,
        service: Option<&str>,
    ) -> Result<Option<HeaderValue>, Trouble> {
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
        if let Some(basic) = self.basic() {
            call = call.header(AUTHORIZATION, basic);
        }
        let answer = judge(call.send().await.map_err(|error| unsent(&error))?);
        let answer = answer.map_err(|trouble| match trouble {
            Trouble::Closed | Trouble::Missing if self.login.is_some() => Trouble::LoginRefused,
            Trouble::Missing => Trouble::Closed,
            other => other,
        })?;
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
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Trouble::Closed),
        StatusCode::NOT_FOUND => Err(Trouble::Missing),
        StatusCode::TOO_MANY_REQUESTS => Err(Trouble::Unreachable("it says that this machine asks too often".into())),
        status if status.is_server_error() => Err(Trouble::Unreachable(format!("it answers {}", status.as_u16()))),
        status => Err(Trouble::Strange(format!("status {}", status.as_u16()))),
    }
}

/// Why nothing was answered: nobody did, or the registry leads where nothing is sent to, without encryption or in circles.
fn unsent(error: &reqwest::Error) -> Trouble {
    if error.is_redirect() || error.is_builder() {
        return Trouble::Strange(format!("it sends this engine where it must not go ({})", reason(error)));
    }
    Trouble::Unreachable(reason(error))
}

/// Reads a whole answer that must not be longer.
pub(in crate::local::images) async fn read(mut answer: Response, most: u64) -> Result<Vec<u8>, Trouble> {
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
pub(in crate::local::images) fn reason(error: &reqwest::Error) -> String {
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
