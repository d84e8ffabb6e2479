//! Pulling an image: resolves its name, fetches the layers that are missing, and stores what the image is made of.
//!
//! Start reading at [`pull_image`], then `layer` and `transfer`; `unpack_permits` limits how many layers are unpacked at once, and
//! `progress` is what the owner of the request sees meanwhile.

mod layer;
mod opaque_directories;
mod progress;
mod transfer;
pub(super) mod unpack_permits;

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use oci_spec::distribution::Reference;
use tokio::sync::watch;

use self::layer::{Layer, Pull};
use self::progress::Progress;
use super::cache::stored_images::Stored;
use super::cache::{Images, Pins};
use super::names;
use super::registry::manifest::{self, Found};
use super::registry::sources::Sources;
use crate::Error;
use crate::local::local_host::{LocalHost, blocking};

const FAILED: &str = "an image could not be written down";

pub(super) async fn pull_image<'a>(
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
            let mut fetched = layer::fetch(&self.pull, layer).await;
            // What a mirror has spoiled is fetched anew without it.
            while matches!(fetched, Err(Error::Permanent(_))) && self.pull.sources.distrust(&layer.digest) {
                fetched = layer::fetch(&self.pull, layer).await;
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
    let (found, digest, index) = match manifest::understand(name, &text)? {
        Found::Elsewhere(digest) => {
            if names::hex(&digest).is_none() {
                return Err(Error::Permanent(format!("{name} cannot be used: its index is not understood")));
            }
            let (text, digest) = sources.document(&format!("manifests/{digest}")).await?;
            (manifest::understand(name, &text)?, digest, Some(first))
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
    let (image, archives) = manifest::configuration(name, &text, descriptors.len())?;
    let layer = |(descriptor, archive): (&manifest::Descriptor, String)| {
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
