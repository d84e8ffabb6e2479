//! Where an image comes from: its registry, and the mirrors that are asked first.
//!
//! A mirror is a help and never a hindrance: one that does not answer, breaks off or gives something wrong is not asked any more in
//! that pull, and whatever it did is not the owner's trouble. Only what the registry itself says fails a pull.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oci_spec::distribution::Reference;
use reqwest::Response;
use sha2::{Digest, Sha256};

use super::connection::{self, Registry, Trouble};
use super::manifest::{self, MAX_DOCUMENT};
use crate::Error;
use crate::local::images::names;
use crate::local::images::settings::ImageSettings;

/// How long a registry may take for its answer, and for the rest of a document.
const ANSWER: Duration = Duration::from_secs(9);
const REST: Duration = Duration::from_secs(27);

/// How long to wait before each further try, in seconds, when a registry does not answer. Of one that is not there its owner is
/// told soon; but once layers are on their way, one that is just being restarted must not make all of it in vain.
const DOCUMENT_PAUSES: [u64; 2] = [1, 2];
const LAYER_PAUSES: [u64; 5] = [1, 2, 4, 8, 15];

/// So often a document may break off.
const TRIES: u32 = 3;

/// Where an image comes from.
pub(in crate::local::images) struct Sources {
    /// Mirrors first; the last is the registry itself.
    all: Vec<Source>,
    repository: String,
    /// The image as it was asked for.
    pub(in crate::local::images) name: String,
    /// Who gave how much of a layer is not known, but who gave something of it is.
    gave: Mutex<BTreeMap<String, BTreeSet<usize>>>,
}

/// A registry or a mirror of it.
struct Source {
    registry: Registry,
    /// Whether this pull goes on without it.
    is_left: AtomicBool,
}

/// What somebody answered, and who.
pub(super) struct Given {
    pub(in crate::local::images) answer: Response,
    source: usize,
}

impl Sources {
    pub(in crate::local::images) async fn new(reference: &Reference, settings: &ImageSettings) -> Result<Self, Error> {
        let own = reference.registry();
        let (repository, name) = (reference.repository().to_owned(), reference.to_string());
        let mirrors = settings.registry(own).map_or(&[][..], |registry| &registry.mirrors);
        let mut all = Vec::new();
        for host in mirrors.iter().map(String::as_str).chain([own]) {
            let registry = Registry::new(host, settings).await.map_err(|why| {
                Error::Permanent(format!("{name} cannot be pulled: this machine cannot speak to registries: {why}"))
            })?;
            all.push(Source { registry, is_left: AtomicBool::new(false) });
        }
        Ok(Sources { all, repository, name, gave: Mutex::default() })
    }

    /// A document, with its digest. One that was asked for by its digest has that one.
    pub(in crate::local::images) async fn document(&self, part: &str) -> Result<(Vec<u8>, String), Error> {
        let asked = part.rsplit('/').next().and_then(names::hex);
        let mut troubles = 0;
        loop {
            let Given { answer, source } = self.patiently(part, 0, &DOCUMENT_PAUSES).await?;
            let read = tokio::time::timeout(REST, connection::read(answer, MAX_DOCUMENT)).await;
            let text = match read.unwrap_or_else(|_| Err(Trouble::Unreachable("it fell silent".into()))) {
                Ok(text) => text,
                Err(trouble) if self.leave(source, &trouble) => continue,
                Err(Trouble::Unreachable(_)) if troubles + 1 < TRIES => {
                    troubles += 1;
                    continue;
                }
                Err(trouble) => return Err(self.explain(&trouble, troubles + 1)),
            };
            let digest: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
            let is_right = asked.map_or_else(|| manifest::is_one(&text), |asked| asked == digest);
            if !is_right && self.leave(source, &Trouble::Strange("another document than was asked for".into())) {
                continue;
            }
            return match asked {
                Some(asked) if asked != digest => Err(self.does_not_match()),
                _ => Ok((text, digest)),
            };
        }
    }

    /// The bytes of a layer, from one of them on.
    pub(in crate::local::images) async fn layer(&self, digest: &str, from: u64) -> Result<Given, Error> {
        let given = self.patiently(&format!("blobs/sha256:{digest}"), from, &LAYER_PAUSES).await?;
        let mut gave = self.gave.lock().unwrap_or_else(PoisonError::into_inner);
        gave.entry(digest.to_owned()).or_default().insert(given.source);
        Ok(given)
    }

    /// Somebody broke off in the middle. Says whether it was a mirror, which is not asked again.
    pub(in crate::local::images) fn left_off(&self, given: &Given, why: &str) -> bool {
        self.leave(given.source, &Trouble::Unreachable(why.to_owned()))
    }

    /// A layer was not what it should be. Says whether a mirror gave something of it, so that it is worth to fetch it anew: from
    /// then on without those mirrors.
    pub(in crate::local::images) fn distrust(&self, digest: &str) -> bool {
        let gave = self.gave.lock().unwrap_or_else(PoisonError::into_inner).remove(digest).unwrap_or_default();
        let wrong = Trouble::Strange("a layer that is not right".into());
        gave.into_iter().map(|source| self.leave(source, &wrong)).fold(false, |any, left| any | left)
    }

    /// The registry itself.
    fn own(&self) -> &Registry {
        &self.all.last().expect("the registry itself is always among them").registry
    }

    /// Goes on without a mirror. The registry itself is never left.
    fn leave(&self, source: usize, trouble: &Trouble) -> bool {
        if source + 1 >= self.all.len() {
            return false;
        }
        let Source { registry, is_left } = &self.all[source];
        if !is_left.swap(true, Ordering::Relaxed) {
            tracing::warn!(image = self.name, mirror = registry.host, ?trouble, "a mirror is of no help");
        }
        true
    }

    /// Asks the mirrors that are of help, once each, and then the registry itself, again after each pause when it does not answer.
    async fn patiently(&self, part: &str, from: u64, pauses: &[u64]) -> Result<Given, Error> {
        for (source, mirror) in self.all[..self.all.len() - 1].iter().enumerate() {
            if mirror.is_left.load(Ordering::Relaxed) {
                continue;
            }
            match self.ask(&mirror.registry, part, from).await {
                Ok(answer) => return Ok(Given { answer, source }),
                Err(trouble @ (Trouble::Unreachable(_) | Trouble::Strange(_))) => {
                    self.leave(source, &trouble);
                }
                // It may have other parts.
                Err(Trouble::Missing | Trouble::Closed | Trouble::NotForLogin | Trouble::LoginRefused) => {}
            }
        }
        let (mut pauses, mut tries) = (pauses.iter(), 0);
        loop {
            tries += 1;
            let trouble = match self.ask(self.own(), part, from).await {
                Ok(answer) => return Ok(Given { answer, source: self.all.len() - 1 }),
                Err(trouble) => trouble,
            };
            match pauses.next() {
                Some(pause) if matches!(trouble, Trouble::Unreachable(_)) => {
                    tokio::time::sleep(Duration::from_secs(*pause)).await;
                }
                _ => return Err(self.explain(&trouble, tries)),
            }
        }
    }

    async fn ask(&self, registry: &Registry, part: &str, from: u64) -> Result<Response, Trouble> {
        let asked = tokio::time::timeout(ANSWER, registry.get(&self.repository, part, from)).await;
        let asked = asked.unwrap_or_else(|_| Err(Trouble::Unreachable("it does not answer".into())));
        asked.inspect_err(|trouble| {
            tracing::info!(image = self.name, registry = registry.host, ?trouble, "an image was not given");
        })
    }

    /// What the owner is told when the registry itself did not help, however often it was tried.
    fn explain(&self, trouble: &Trouble, tries: u32) -> Error {
        let (name, host, repository) = (&self.name, &self.own().host, &self.repository);
        Error::Permanent(match trouble {
            Trouble::Missing => format!("there is no image {name}: {host} has no such repository, tag or digest"),
            Trouble::LoginRefused => {
                format!("{name} cannot be pulled: {host} refuses the login that this cloud has for it")
            }
            Trouble::NotForLogin => {
                format!(
                    "{name} cannot be pulled: {host} has no {repository}, or not for the login that this cloud has there"
                )
            }
            Trouble::Closed => {
                format!(
                    "{name} cannot be pulled: {host} has no {repository} for everybody, and this cloud has no login there"
                )
            }
            Trouble::Unreachable(why) => self.broke_off(why, tries).to_string(),
            Trouble::Strange(why) => format!("{name} cannot be pulled: {host} does not answer like a registry: {why}"),
        })
    }

    /// What the owner is told when the registry cannot be reached.
    pub(in crate::local::images) fn broke_off(&self, why: &str, tries: u32) -> Error {
        let (name, host) = (&self.name, &self.own().host);
        Error::Permanent(format!(
            "{name} cannot be pulled: the registry {host} cannot be reached: {why}; it was tried {tries} times"
        ))
    }

    /// What the owner is told when contents are not what they should be.
    pub(in crate::local::images) fn does_not_match(&self) -> Error {
        let (name, host) = (&self.name, &self.own().host);
        Error::Permanent(format!("{name} cannot be used: what {host} sends does not match its digest"))
    }
}
