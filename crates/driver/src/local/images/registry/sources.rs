//! The sources of an image: its registry, and the mirrors that are tried first.
//!
//! A mirror must never make a pull worse: a mirror that does not respond, interrupts or sends wrong data is not used
//! again in that pull, and its failures are not reported to the owner. Only failures of the registry itself fail a
//! pull. Their details are logged for the operator; the owner is told only what a registry responded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Response;
use sha2::{Digest, Sha256};
use tarn_model::images::Reference;

use super::connection::RegistryClient;
use super::http_clients::HttpClients;
use super::manifest::{self, MAX_DOCUMENT};
use super::responses::{self, RegistryError};
use crate::Error;
use crate::local::images;
use crate::local::images::settings::ImageSettings;

/// How long a registry may take to respond, and to send the rest of a document.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(9);
const BODY_TIMEOUT: Duration = Duration::from_secs(27);

/// The delays between tries, in seconds, when a registry does not respond. An unreachable registry is reported soon;
/// but once layers are being transferred, a short restart of the registry must not waste the whole pull.
const DOCUMENT_RETRY_DELAYS: [u64; 2] = [1, 2];
const LAYER_RETRY_DELAYS: [u64; 5] = [1, 2, 4, 8, 15];

/// How often the transfer of a document is tried.
const TRIES: u32 = 3;

/// The sources of an image.
pub(in crate::local::images) struct Sources {
    /// Mirrors first; the last is the registry itself.
    all: Vec<Source>,
    repository: String,
    /// The name of the image as it was requested.
    pub(in crate::local::images) name: String,
    /// Which sources have sent parts of which layer.
    contributors: Mutex<BTreeMap<String, BTreeSet<usize>>>,
}

/// A registry or a mirror of it.
struct Source {
    registry: RegistryClient,
    /// Whether this pull no longer uses it.
    is_dropped: AtomicBool,
}

/// A document of a registry: a manifest, an index or a configuration.
pub(in crate::local::images) struct Document {
    pub(in crate::local::images) text: Vec<u8>,
    /// The SHA-256 of the text, in hex.
    pub(in crate::local::images) digest: String,
}

/// A response and its source.
pub(in crate::local::images) struct SourceResponse {
    pub(in crate::local::images) response: Response,
    source: usize,
}

impl Sources {
    pub(in crate::local::images) fn new(
        reference: &Reference,
        settings: &ImageSettings,
        clients: &Arc<HttpClients>,
    ) -> Self {
        let own = reference.registry();
        let (repository, name) = (reference.repository().to_owned(), reference.to_string());
        let mirrors = settings.registry_settings(own).map_or(&[][..], |registry| &registry.mirrors);
        let source = |host: &str| {
            let registry = RegistryClient::new(host, settings, clients.clone());
            Source { registry, is_dropped: AtomicBool::new(false) }
        };
        let all = mirrors.iter().map(String::as_str).chain([own]).map(source).collect();
        Sources { all, repository, name, contributors: Mutex::default() }
    }

    /// Fetches a document. Its digest is verified if the document was requested by digest.
    pub(in crate::local::images) async fn fetch_document(&self, part: &str) -> Result<Document, Error> {
        let requested_digest = part.rsplit('/').next().and_then(images::digest_hex);
        let mut failures = 0;
        loop {
            let SourceResponse { response, source } =
                self.request_with_retries(part, 0, &DOCUMENT_RETRY_DELAYS).await?;
            let is_of_registry = responses::is_of_registry(response.headers());
            let read = tokio::time::timeout(BODY_TIMEOUT, responses::read_body(response, MAX_DOCUMENT)).await;
            let text = match read.unwrap_or_else(|_| Err(RegistryError::Unreachable("it stopped sending".into()))) {
                Ok(text) => text,
                Err(error) if self.drop_mirror(source, &error) => continue,
                Err(RegistryError::Unreachable(_)) if failures + 1 < TRIES => {
                    failures += 1;
                    continue;
                }
                Err(error) => return Err(self.explain_failure(&error)),
            };
            let digest = hex::encode(Sha256::digest(&text));
            let is_right = requested_digest
                .map_or_else(|| manifest::is_manifest(&text), |requested_digest| requested_digest == digest);
            let wrong = RegistryError::Unexpected("a document that does not match".into());
            if !is_right && self.drop_mirror(source, &wrong) {
                continue;
            }
            if !is_right && !is_of_registry {
                return Err(self.explain_failure(&wrong));
            }
            return match requested_digest {
                Some(requested_digest) if requested_digest != digest => Err(self.digest_mismatch()),
                _ => Ok(Document { text, digest }),
            };
        }
    }

    /// Requests a layer, starting at a byte.
    pub(in crate::local::images) async fn open_layer(&self, digest: &str, from: u64) -> Result<SourceResponse, Error> {
        let source_response =
            self.request_with_retries(&format!("blobs/sha256:{digest}"), from, &LAYER_RETRY_DELAYS).await?;
        let mut contributors = self.contributors.lock();
        contributors.entry(digest.to_owned()).or_default().insert(source_response.source);
        Ok(source_response)
    }

    /// Reports an interrupted transfer. Returns whether it was from a mirror, which is not used again.
    pub(in crate::local::images) fn abandon_mirror(&self, source_response: &SourceResponse, why: &str) -> bool {
        self.drop_mirror(source_response.source, &RegistryError::Unreachable(why.to_owned()))
    }

    /// Reports an invalid layer. Returns whether a mirror has sent parts of it, so that fetching it again without those
    /// mirrors is worthwhile.
    pub(in crate::local::images) fn distrust_layer_mirrors(&self, digest: &str) -> bool {
        let contributors = self.contributors.lock().remove(digest).unwrap_or_default();
        let wrong = RegistryError::Unexpected("an invalid layer".into());
        contributors.into_iter().map(|source| self.drop_mirror(source, &wrong)).fold(false, |any, left| any | left)
    }

    /// Returns the registry itself.
    fn own_registry(&self) -> &RegistryClient {
        &self.all.last().expect("the registry itself is always among them").registry
    }

    /// Stops using a mirror. The registry itself is never dropped.
    fn drop_mirror(&self, source: usize, error: &RegistryError) -> bool {
        if source + 1 >= self.all.len() {
            return false;
        }
        let Source { registry, is_dropped } = &self.all[source];
        if !is_dropped.swap(true, Ordering::Relaxed) {
            tracing::warn!(image = self.name, mirror = registry.host, ?error, "a mirror is not used any more");
        }
        true
    }

    /// Tries each usable mirror once, then the registry itself, again after each delay while it does not respond.
    async fn request_with_retries(&self, part: &str, from: u64, delays: &[u64]) -> Result<SourceResponse, Error> {
        for (source, mirror) in self.all[..self.all.len() - 1].iter().enumerate() {
            if mirror.is_dropped.load(Ordering::Relaxed) {
                continue;
            }
            match self.request_part(&mirror.registry, part, from).await {
                Ok(response) => return Ok(SourceResponse { response, source }),
                Err(error) if error.is_temporary() || matches!(error, RegistryError::Unexpected(_)) => {
                    self.drop_mirror(source, &error);
                }
                // It may have other parts.
                Err(_) => {}
            }
        }
        let mut delays = delays.iter();
        loop {
            let error = match self.request_part(self.own_registry(), part, from).await {
                Ok(response) => return Ok(SourceResponse { response, source: self.all.len() - 1 }),
                Err(error) => error,
            };
            match delays.next() {
                Some(delay) if error.is_temporary() => tokio::time::sleep(Duration::from_secs(*delay)).await,
                _ => return Err(self.explain_failure(&error)),
            }
        }
    }

    async fn request_part(&self, registry: &RegistryClient, part: &str, from: u64) -> Result<Response, RegistryError> {
        let response = tokio::time::timeout(RESPONSE_TIMEOUT, registry.get_part(&self.repository, part, from)).await;
        let response = response.unwrap_or_else(|_| Err(RegistryError::Unreachable("it does not respond".into())));
        response.inspect_err(|error| self.log_failure(registry, error))
    }

    fn log_failure(&self, registry: &RegistryClient, error: &RegistryError) {
        let (image, registry) = (&self.name, &registry.host);
        match error {
            RegistryError::NotPublic(host) => tracing::warn!(
                image,
                registry,
                host,
                "a pull was refused: the host is at a private address, of this host, or denied; if users may pull from \
                 it, add it to images.private_registries"
            ),
            error => tracing::info!(image, registry, ?error, "a registry did not deliver an image"),
        }
    }

    /// Returns the error for the owner when the registry itself failed.
    fn explain_failure(&self, error: &RegistryError) -> Error {
        let (name, host, repository) = (&self.name, &self.own_registry().host, &self.repository);
        Error::Permanent(match error {
            RegistryError::NotFound => {
                format!("there is no image {name}: {host} has no such repository, tag or digest")
            }
            RegistryError::LoginRejected => {
                format!("{name} cannot be pulled: {host} rejects the login that this cloud has for it")
            }
            RegistryError::AccessDenied => {
                format!(
                    "{name} cannot be pulled: {host} has no {repository}, or the login of this cloud has no access to \
                     it"
                )
            }
            RegistryError::Unauthorized => {
                format!("{name} cannot be pulled: {host} has no public {repository}, and this cloud has no login there")
            }
            RegistryError::Unavailable(429) => {
                format!("{name} cannot be pulled: {host} reports too many requests from this cloud; try again later")
            }
            RegistryError::Unavailable(status) => {
                format!("{name} cannot be pulled: {host} is unavailable (status {status}); try again later")
            }
            RegistryError::NotPublic(_) | RegistryError::Unreachable(_) | RegistryError::Unexpected(_) => {
                return self.no_registry_error();
            }
        })
    }

    /// Returns the one error for everything that is not the response of a registry. It must not tell apart what else is
    /// at that address: the owner of the image chose the address, and it may be none of theirs.
    fn no_registry_error(&self) -> Error {
        let (name, host) = (&self.name, &self.own_registry().host);
        Error::Permanent(format!(
            "{name} cannot be pulled: this cloud does not reach a registry at {host}; check the name, try again later, \
             or ask the operator, who finds the reason in the log"
        ))
    }

    /// Returns the error for a layer that the registry did not send.
    pub(in crate::local::images) fn interruption_error(&self, why: &str) -> Error {
        self.log_failure(self.own_registry(), &RegistryError::Unreachable(why.to_owned()));
        self.no_registry_error()
    }

    /// Returns the error for contents that do not match their digest.
    pub(in crate::local::images) fn digest_mismatch(&self) -> Error {
        let (name, host) = (&self.name, &self.own_registry().host);
        Error::Permanent(format!("{name} cannot be used: the data from {host} does not match its digest"))
    }
}
