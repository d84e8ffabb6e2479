//! Container images: pulled from registries, checked, unpacked layer by layer, and kept for as long as there is room.
//!
//! A layer is unpacked once, into a directory of its own, and shared by all images that have it; an instance stands on
//! mounts of its layers. Nothing here trusts an image or a registry. Start reading at [`ensure`], then `layers`, `sending` and
//! `turns`; `cache` and `kept` are what is on disk, `room` and `eviction` what fits there, `sources`,
//! `registries` and `greetings` how registries are asked, `manifests` what they say.

mod cache;
mod challenges;
mod clients;
mod eviction;
mod greetings;
mod kept;
mod layers;
mod manifests;
mod names;
mod opaque;
mod progress;
mod registries;
mod room;
mod sending;
mod settings;
mod sources;
mod turns;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use oci_spec::distribution::Reference;
use tokio::sync::watch;

pub(super) use cache::{Images, Pins};
pub use greetings::greet;
pub(super) use kept::Stored;
pub use registries::is_loopback;
pub use settings::{ImageSettings, Registry};

use super::local_host::{LocalHost, blocking};
use crate::Error;
use layers::{Layer, Pull};
use manifests::Found;
use progress::Progress;
use sources::Sources;

const FAILED: &str = "an image could not be written down";

/// Makes an image be there, and returns its exact name. Whoever no longer waits for it ends the pull.
pub(super) async fn ensure(
    host: &Arc<LocalHost>,
    reference: &str,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<String, Error> {
    let reference = names::parse(reference)?;
    let (tell, mut told) = watch::channel(String::new());
    let (own, wanted) = (host.clone(), reference.clone());
    // A task of its own, so that what is half done is cleared away also when nobody waits for it any more.
    let mut pulling = tokio::spawn(async move { pull(&own, &wanted, tell).await.map(|(stored, _)| stored) });
    let pulled = loop {
        tokio::select! {
            pulled = &mut pulling => break pulled,
            changed = told.changed() => match changed {
                Ok(()) => {
                    let words = told.borrow_and_update().clone();
                    progress(words);
                }
                Err(_) => break (&mut pulling).await,
            },
        }
    };
    match pulled {
        Ok(stored) => Ok(names::exact(&reference, &stored?.digest)),
        Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
        Err(_) => Err(Error::Retry("the engine is stopping".into())),
    }
}

/// Makes the image of an exact name be there.
pub(super) async fn fetch(host: &Arc<LocalHost>, name: &str) -> Result<(), Error> {
    exact_digest(name)?;
    ensure(host, name, &|_| ()).await.map(drop)
}

/// The image of an exact name, which stays for as long as the pins live. It is not fetched here: whoever holds it has locks that
/// others wait for.
pub(super) fn hold<'a>(host: &'a LocalHost, name: &str) -> Result<(Stored, Pins<'a>), Error> {
    let found = host.images.find(&exact_digest(name)?);
    found.ok_or_else(|| Error::Retry(format!("{name} had to make room, and is pulled again")))
}

/// The digest in an exact name: an instance is never made of what may be another image tomorrow.
fn exact_digest(name: &str) -> Result<String, Error> {
    let digest = names::parse(name)?.digest().and_then(names::hex).map(ToOwned::to_owned);
    digest.ok_or_else(|| Error::Permanent(format!("{name} does not say exactly which image is meant")))
}

async fn pull<'a>(
    host: &'a LocalHost,
    reference: &Reference,
    tell: watch::Sender<String>,
) -> Result<(Stored, Pins<'a>), Error> {
    let images = &host.images;
    if let Some(found) = reference.digest().and_then(names::hex).and_then(|digest| images.find(digest)) {
        return Ok(found);
    }
    let sources = Sources::new(reference, &images.settings).await?;
    tell.send_replace(format!("asks {} for {}", reference.registry(), sources.name));
    let answer = tokio::select! {
        answer = ask(images, &sources, reference) => answer?,
        () = tell.closed() => return Err(Error::Retry("nobody waits for the image any more".into())),
    };
    let resolved = match answer {
        Answer::Known(found) => return Ok(found),
        Answer::New(resolved) => resolved,
    };
    let pins = images.pin(resolved.stored.layers.clone());
    let mut wanted = resolved.layers;
    // An image may have the same layer twice.
    wanted.sort_by(|one, other| one.digest.cmp(&other.digest));
    wanted.dedup_by(|one, other| one.digest == other.digest && one.archive == other.archive);
    let bytes = wanted.iter().map(|layer| layer.size).sum();
    let progress = Progress::new(sources.name.clone(), wanted.len() as u64, bytes, tell);
    let (registry, layers) = (reference.registry(), resolved.stored.layers.as_slice());
    let pull = Pull { host, sources: &sources, registry, layers, progress };
    let coming = Coming { pull, layers: &wanted, next: AtomicUsize::new(0), failure: OnceLock::new() };
    tokio::join!(coming.fetch(), coming.fetch(), coming.fetch());
    if let Some(failure) = coming.failure.into_inner() {
        return Err(failure);
    }
    let stored = Stored { layers: images.seen(layers), ..resolved.stored.clone() };
    let (own, written, index) = (images.clone(), stored.clone(), resolved.index);
    blocking(FAILED, move || own.store(&written, index.as_deref())).await?;
    Ok((stored, pins))
}

/// The layers of an image on their way, some at once.
struct Coming<'a> {
    pull: Pull<'a>,
    layers: &'a [Layer],
    /// The next one that nobody fetches yet.
    next: AtomicUsize,
    /// What went wrong first.
    failure: OnceLock<Error>,
}

impl Coming<'_> {
    /// Fetches one after the other. After a failure all others are given up; each clears up behind itself.
    async fn fetch(&self) {
        while let Some(layer) = self.layers.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let mut fetched = layers::fetch(&self.pull, layer).await;
            // What a mirror has spoiled is fetched anew without it.
            while matches!(fetched, Err(Error::Permanent(_))) && self.pull.sources.distrust(&layer.digest) {
                fetched = layers::fetch(&self.pull, layer).await;
            }
            if let Err(error) = fetched {
                let _only_the_first = self.failure.set(error);
                self.pull.progress.give_up();
                return;
            }
        }
    }
}

/// What registries say of an image.
struct Resolved {
    stored: Stored,
    layers: Vec<Layer>,
    /// The digest of the index that led to it.
    index: Option<String>,
}

/// What a name leads to.
enum Answer<'a> {
    /// An image that is here.
    Known((Stored, Pins<'a>)),
    /// One that is not.
    New(Resolved),
}

async fn ask<'a>(images: &'a Images, sources: &Sources, reference: &Reference) -> Result<Answer<'a>, Error> {
    let asked = reference.digest().or(reference.tag()).unwrap_or("latest");
    let first = sources.document(&format!("manifests/{asked}")).await?;
    // What a tag means may be here, and then nothing more has to be asked.
    if let Some(found) = images.find(&first.1) {
        return Ok(Answer::Known(found));
    }
    let resolved = resolve(sources, first).await?;
    Ok(images.find(&resolved.stored.digest).map_or(Answer::New(resolved), Answer::Known))
}

/// Asks for the rest of what the first document, with its digest, says of an image.
async fn resolve(sources: &Sources, (text, first): (Vec<u8>, String)) -> Result<Resolved, Error> {
    let name = &sources.name;
    let (found, digest, index) = match manifests::understand(name, &text)? {
        Found::Elsewhere(digest) => {
            if names::hex(&digest).is_none() {
                return Err(Error::Permanent(format!("{name} cannot be used: its index is not understood")));
            }
            let (text, digest) = sources.document(&format!("manifests/{digest}")).await?;
            (manifests::understand(name, &text)?, digest, Some(first))
        }
        here => (here, first, None),
    };
    let Found::Here(config, descriptors) = found else {
        return Err(Error::Permanent(format!("{name} cannot be used: its index leads to another index")));
    };
    if names::hex(&config.digest).is_none() {
        return Err(Error::Permanent(format!("{name} cannot be used: its configuration has no SHA-256")));
    }
    let (text, _) = sources.document(&format!("blobs/{}", config.digest)).await?;
    let (image, archives) = manifests::configuration(name, &text, descriptors.len())?;
    let layer = |(descriptor, archive): (&manifests::Descriptor, String)| {
        let digest = names::hex(&descriptor.digest).unwrap_or_default().to_owned();
        Layer { digest, archive, size: descriptor.size }
    };
    let layers: Vec<Layer> = descriptors.iter().zip(archives).map(layer).collect();
    let stored = Stored { digest, layers: each_once(&layers), image };
    Ok(Resolved { stored, layers, index })
}

/// The digests of layers, lowest first. The kernel does not stack the same tree twice, so that of one that comes again, as empty
/// ones often do, only the highest counts: whatever it has covers what it has further down.
fn each_once(layers: &[Layer]) -> Vec<String> {
    let digests = layers.iter().map(|layer| &layer.digest);
    let mut seen = BTreeSet::new();
    let mut kept: Vec<_> = digests.rev().filter(|digest| seen.insert(*digest)).cloned().collect();
    kept.reverse();
    kept
}
