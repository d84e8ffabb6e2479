//! Container images: pulled from registries, checked, unpacked layer by layer, and kept for as long as there is room.
//!
//! A layer is unpacked once, into a directory of its own, and shared by all images that have it; an instance stands on
//! mounts of its layers. Nothing here trusts an image or a registry. Start reading at [`ensure`], then `layers`; `cache` is what is
//! on disk, `sources` and `registries` how registries are asked, `manifests` what they say.

mod cache;
mod challenges;
mod clients;
mod layers;
mod manifests;
mod names;
mod progress;
mod registries;
mod settings;
mod sources;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oci_spec::distribution::Reference;
use tokio::sync::watch;

pub(super) use cache::{Images, Pins, Stored};
pub use registries::is_loopback;
pub use settings::{ImageSettings, Registry};

use super::engine::{Engine, blocking};
use crate::Error;
use layers::Layer;
use manifests::Found;
use progress::Progress;
use sources::Sources;

const FAILED: &str = "an image could not be written down";

/// Makes an image be there, and returns its exact name. Whoever no longer waits for it ends the pull.
pub(super) async fn ensure(
    engine: &Arc<Engine>,
    reference: &str,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<String, Error> {
    let reference = names::parse(reference)?;
    let (tell, mut told) = watch::channel(String::new());
    let (own, wanted) = (engine.clone(), reference.clone());
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

/// The image of an exact name, fetched if it is not there, and kept there for as long as the pins live.
pub(super) async fn hold<'a>(engine: &'a Engine, name: &str) -> Result<(Stored, Pins<'a>), Error> {
    let reference = names::parse(name)?;
    if reference.digest().is_none() {
        return Err(Error::Permanent(format!("{name} does not say exactly which image is meant")));
    }
    let (tell, _told) = watch::channel(String::new());
    pull(engine, &reference, tell).await
}

async fn pull<'a>(
    engine: &'a Engine,
    reference: &Reference,
    tell: watch::Sender<String>,
) -> Result<(Stored, Pins<'a>), Error> {
    let images = &engine.images;
    if let Some(found) = reference.digest().and_then(names::hex).and_then(|digest| images.find(digest)) {
        return Ok(found);
    }
    let sources = Sources::new(reference, &images.settings).await?;
    tell.send_replace(format!("asks {} for {}", reference.registry(), sources.name));
    let resolved = tokio::select! {
        resolved = resolve(&sources, reference) => resolved?,
        () = tell.closed() => return Err(Error::Retry("nobody waits for the image any more".into())),
    };
    if let Some(found) = images.find(&resolved.stored.digest) {
        return Ok(found);
    }
    let pins = images.pin(resolved.stored.layers.clone());
    let mut wanted = resolved.layers;
    // An image may have the same layer twice.
    wanted.sort_by(|one, other| one.digest.cmp(&other.digest));
    wanted.dedup_by(|one, other| one.digest == other.digest && one.archive == other.archive);
    let bytes = wanted.iter().map(|layer| layer.size).sum();
    let progress = Progress::new(sources.name.clone(), wanted.len() as u64, bytes, tell);
    let coming = Coming { engine, sources: &sources, layers: &wanted, progress, next: AtomicUsize::new(0) };
    let (one, two, three) = tokio::join!(coming.fetch(), coming.fetch(), coming.fetch());
    one.and(two).and(three)?;
    // Two that write down the same image would be in each other's way.
    let _one_at_a_time = engine.lock(&format!("image {}", resolved.stored.digest)).await;
    let (own, stored, index) = (images.clone(), resolved.stored.clone(), resolved.index);
    blocking(FAILED, move || own.store(&stored, index.as_deref())).await?;
    Ok((resolved.stored, pins))
}

/// The layers of an image on their way, some at once.
struct Coming<'a> {
    engine: &'a Engine,
    sources: &'a Sources,
    layers: &'a [Layer],
    progress: Progress,
    /// The next one that nobody fetches yet.
    next: AtomicUsize,
}

impl Coming<'_> {
    /// Fetches one after the other. After a failure no more begin; those on their way come to their end, so that each clears up
    /// behind itself.
    async fn fetch(&self) -> Result<(), Error> {
        while let Some(layer) = self.layers.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let mut fetched = layers::fetch(self.engine, self.sources, layer, &self.progress).await;
            // What a mirror has spoiled is fetched anew without it.
            while matches!(fetched, Err(Error::Permanent(_))) && self.sources.distrust(&layer.digest) {
                fetched = layers::fetch(self.engine, self.sources, layer, &self.progress).await;
            }
            if fetched.is_err() {
                self.next.store(self.layers.len(), Ordering::Relaxed);
                return fetched;
            }
        }
        Ok(())
    }
}

/// What registries say of an image.
struct Resolved {
    stored: Stored,
    layers: Vec<Layer>,
    /// The digest of the index that led to it.
    index: Option<String>,
}

async fn resolve(sources: &Sources, reference: &Reference) -> Result<Resolved, Error> {
    let name = &sources.name;
    let asked = reference.digest().or(reference.tag()).unwrap_or("latest");
    let (text, first) = sources.document(&format!("manifests/{asked}")).await?;
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
