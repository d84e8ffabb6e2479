//! Pulling an image: resolves its name, fetches the missing layers, and stores the image.
//!
//! Start reading at [`pull_image`], then `layer` and `transfer`; `turns` decides which layers are transferred at a
//! time, and `progress` is what the owner of the request sees meanwhile.

mod layer;
mod opaque_directories;
mod progress;
mod transfer;
pub(super) mod turns;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tarn_model::images::Reference;
use tokio::sync::watch;

use self::layer::{Layer, Pull};
use self::progress::Progress;
use super::cache::stored_images::StoredImage;
use super::cache::{Images, Pins};
use super::registry::manifest::{self, ManifestContent};
use super::registry::sources::{Document, Sources};
use crate::Error;
use crate::local::local_host::{LocalHost, blocking};

const FAILED: &str = "an image could not be stored";

pub(super) async fn pull_image<'a>(
    host: &'a LocalHost,
    reference: &Reference,
    share: Arc<str>,
    progress_sender: watch::Sender<String>,
) -> Result<(StoredImage, Pins<'a>), Error> {
    let images = &host.images;
    if let Some(found) =
        reference.digest().and_then(super::digest_hex).and_then(|digest| images.find_stored_image(digest))
    {
        return Ok(found);
    }
    let sources = Sources::new(reference, &images.settings, &images.http_clients);
    progress_sender.send_replace(format!("requests {} from {}", sources.name, reference.registry()));
    let lookup = tokio::select! {
        lookup = look_up_image(images, &sources, reference) => lookup?,
        () = progress_sender.closed() => return Err(Error::Retry("the request no longer waits for the image".into())),
    };
    let resolved = match lookup {
        Lookup::Stored(found) => return Ok(found),
        Lookup::Missing(resolved) => resolved,
    };
    let pins = images.pin_layers(resolved.stored.layers.clone());
    let mut wanted = resolved.layers;
    // An image may contain the same layer twice.
    wanted.sort_by(|one, other| one.digest.cmp(&other.digest));
    wanted.dedup_by(|one, other| one.digest == other.digest && one.archive == other.archive);
    let bytes = wanted.iter().map(|layer| layer.size).sum();
    let progress = Progress::new(sources.name.clone(), wanted.len() as u64, bytes, progress_sender);
    let (registry, layers) = (reference.registry(), resolved.stored.layers.as_slice());
    let pull = Pull { host, sources: &sources, registry, share: &share, layers, progress };
    let queue = LayerQueue { pull, layers: &wanted, next: AtomicUsize::new(0), failure: OnceLock::new() };
    tokio::join!(queue.fetch_next_layers(), queue.fetch_next_layers(), queue.fetch_next_layers());
    if let Some(failure) = queue.failure.into_inner() {
        return Err(failure);
    }
    let stored = StoredImage { layers: images.visible_layers(layers), ..resolved.stored.clone() };
    let (own, written, index) = (images.clone(), stored.clone(), resolved.index);
    blocking(FAILED, move || own.store_image(&written, index.as_deref())).await?;
    Ok((stored, pins))
}

/// The layers of an image, of which some are fetched concurrently.
struct LayerQueue<'a> {
    pull: Pull<'a>,
    layers: &'a [Layer],
    /// The index of the next layer to fetch.
    next: AtomicUsize,
    /// The first failure.
    failure: OnceLock<Error>,
}

impl LayerQueue<'_> {
    /// Fetches one layer after the other. A failure abandons all others; each cleans up after itself.
    async fn fetch_next_layers(&self) {
        while let Some(layer) = self.layers.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let mut fetched = layer::fetch_layer(&self.pull, layer).await;
            // A layer that a mirror has corrupted is fetched again without that mirror.
            while matches!(fetched, Err(Error::Permanent(_))) && self.pull.sources.distrust_layer_mirrors(&layer.digest)
            {
                fetched = layer::fetch_layer(&self.pull, layer).await;
            }
            if let Err(error) = fetched {
                let _only_the_first = self.failure.set(error);
                self.pull.progress.abandon();
                return;
            }
        }
    }
}

/// An image as described by its registry.
struct ResolvedImage {
    stored: StoredImage,
    layers: Vec<Layer>,
    /// The digest of the index that led to it.
    index: Option<String>,
}

/// The result of looking up a name.
enum Lookup<'a> {
    Stored((StoredImage, Pins<'a>)),
    Missing(ResolvedImage),
}

async fn look_up_image<'a>(images: &'a Images, sources: &Sources, reference: &Reference) -> Result<Lookup<'a>, Error> {
    let asked = reference.digest().or(reference.tag()).unwrap_or("latest");
    let first = sources.fetch_document(&format!("manifests/{asked}")).await?;
    // The image of the tag may be stored already, and then nothing more has to be requested.
    if let Some(found) = images.find_stored_image(&first.digest) {
        return Ok(Lookup::Stored(found));
    }
    let resolved = resolve_image(sources, first).await?;
    Ok(images.find_stored_image(&resolved.stored.digest).map_or(Lookup::Missing(resolved), Lookup::Stored))
}

/// Fetches the remaining documents of an image, given the first one.
async fn resolve_image(sources: &Sources, first: Document) -> Result<ResolvedImage, Error> {
    let name = &sources.name;
    let (found, digest, index) = match manifest::parse_manifest(name, &first.text)? {
        ManifestContent::Index(digest) => {
            if super::digest_hex(&digest).is_none() {
                return Err(Error::Permanent(format!("{name} cannot be used: its index is invalid")));
            }
            let image = sources.fetch_document(&format!("manifests/{digest}")).await?;
            (manifest::parse_manifest(name, &image.text)?, image.digest, Some(first.digest))
        }
        here => (here, first.digest, None),
    };
    let ManifestContent::Image(config, descriptors) = found else {
        return Err(Error::Permanent(format!("{name} cannot be used: its index leads to another index")));
    };
    if super::digest_hex(&config.digest).is_none() {
        return Err(Error::Permanent(format!("{name} cannot be used: its configuration has no SHA-256")));
    }
    let configuration = sources.fetch_document(&format!("blobs/{}", config.digest)).await?;
    let (image, archives) = manifest::parse_configuration(name, &configuration.text, descriptors.len())?;
    let layer = |(descriptor, archive): (&manifest::Descriptor, String)| {
        let digest = super::digest_hex(&descriptor.digest).unwrap_or_default().to_owned();
        Layer { digest, archive, size: descriptor.size }
    };
    let layers: Vec<Layer> = descriptors.iter().zip(archives).map(layer).collect();
    let stored = StoredImage { digest, layers: unique_layers(&layers), image };
    Ok(ResolvedImage { stored, layers, index })
}

/// Returns the digests of distinct layers, lowest first. The kernel does not stack the same tree twice. Of a layer that
/// occurs repeatedly, as empty ones often do, only the highest counts: its contents cover the lower occurrences.
fn unique_layers(layers: &[Layer]) -> Vec<String> {
    let digests = layers.iter().map(|layer| &layer.digest);
    let mut seen = BTreeSet::new();
    let mut kept: Vec<_> = digests.rev().filter(|digest| seen.insert(*digest)).cloned().collect();
    kept.reverse();
    kept
}
