//! Where an image comes from: its registry, and the mirrors that are asked first.

use std::time::Duration;

use oci_spec::distribution::Reference;
use reqwest::Response;
use sha2::{Digest, Sha256};

use super::manifests::MAX_DOCUMENT;
use super::names;
use super::registries::{self, Registry, Trouble};
use super::settings::ImageSettings;
use crate::Error;

/// So often a registry is asked that does not answer.
pub(super) const TRIES: u32 = 3;

/// How long all tries may take together, and how long to wait in between.
const PATIENCE: Duration = Duration::from_secs(27);
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Where an image comes from.
pub(super) struct Sources {
    /// Mirrors first; the last is the registry itself.
    registries: Vec<Registry>,
    repository: String,
    /// The image as it was asked for.
    pub(super) name: String,
}

impl Sources {
    pub(super) fn new(reference: &Reference, settings: &ImageSettings) -> Result<Self, Error> {
        let own = reference.registry();
        let mirrors = settings.registry(own).map_or(&[][..], |registry| &registry.mirrors);
        let hosts = mirrors.iter().map(String::as_str).chain([own]);
        let registries: Result<Vec<_>, _> = hosts.map(|host| Registry::new(host, settings)).collect();
        let (repository, name) = (reference.repository().to_owned(), reference.to_string());
        let registries =
            registries.map_err(|_| Error::Permanent(format!("{name} cannot be pulled: {own} is not a registry")))?;
        Ok(Sources { registries, repository, name })
    }

    /// A document, with its digest. One that was asked for by its digest has that one.
    pub(super) async fn document(&self, part: &str) -> Result<(Vec<u8>, String), Error> {
        let mut troubles = 0;
        let text = loop {
            let answer = self.patiently(part, 0).await?;
            match tokio::time::timeout(PATIENCE, registries::read(answer, MAX_DOCUMENT)).await {
                Ok(Ok(text)) => break text,
                Ok(Err(Trouble::Unreachable(_))) if troubles + 1 < TRIES => troubles += 1,
                Ok(Err(trouble)) => return Err(self.explain(&trouble)),
                Err(_) => return Err(self.broke_off("it fell silent")),
            }
        };
        let digest: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        let asked = part.rsplit('/').next().and_then(names::hex);
        match asked {
            Some(asked) if asked != digest => Err(self.does_not_match()),
            _ => Ok((text, digest)),
        }
    }

    /// The bytes of a layer, from one of them on.
    pub(super) async fn layer(&self, digest: &str, from: u64) -> Result<Response, Error> {
        self.patiently(&format!("blobs/sha256:{digest}"), from).await
    }

    /// The registry itself.
    fn own(&self) -> &Registry {
        self.registries.last().expect("the registry itself is always among them")
    }

    /// Asks one after the other, and all of them again when they do not answer.
    async fn patiently(&self, part: &str, from: u64) -> Result<Response, Error> {
        let each = PATIENCE / TRIES / u32::try_from(self.registries.len()).unwrap_or(u32::MAX);
        let mut trouble = Trouble::Missing;
        for attempt in 0..TRIES {
            tokio::time::sleep(PAUSE * attempt).await;
            for registry in &self.registries {
                let asked = tokio::time::timeout(each, registry.get(&self.repository, part, from)).await;
                trouble = match asked.unwrap_or_else(|_| Err(Trouble::Unreachable("it does not answer".into()))) {
                    Ok(found) => return Ok(found),
                    Err(trouble) => trouble,
                };
                tracing::info!(image = self.name, registry = registry.host, ?trouble, "an image was not given");
            }
            if !matches!(trouble, Trouble::Unreachable(_)) {
                break;
            }
        }
        Err(self.explain(&trouble))
    }

    /// What the owner is told when the registry itself did not help.
    fn explain(&self, trouble: &Trouble) -> Error {
        let (name, host, repository) = (&self.name, &self.own().host, &self.repository);
        Error::Permanent(match trouble {
            Trouble::Missing => format!("there is no image {name}: {host} has no such repository, tag or digest"),
            Trouble::Refused if self.own().has_login() => {
                format!("{name} cannot be pulled: {host} refuses the login that this cloud has for it")
            }
            Trouble::Refused => {
                format!(
                    "{name} cannot be pulled: {host} has no {repository} for everybody, and this cloud has no login there"
                )
            }
            Trouble::Unreachable(why) => self.broke_off(why).to_string(),
            Trouble::Strange(why) => format!("{name} cannot be pulled: {host} does not answer like a registry: {why}"),
        })
    }

    /// What the owner is told when the registry cannot be reached.
    pub(super) fn broke_off(&self, why: &str) -> Error {
        let (name, host) = (&self.name, &self.own().host);
        Error::Permanent(format!(
            "{name} cannot be pulled: the registry {host} cannot be reached: {why}; it was tried {TRIES} times"
        ))
    }

    /// What the owner is told when contents are not what they should be.
    pub(super) fn does_not_match(&self) -> Error {
        let (name, host) = (&self.name, &self.own().host);
        Error::Permanent(format!("{name} cannot be used: what {host} sends does not match its digest"))
    }
}
