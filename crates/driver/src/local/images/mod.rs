//! Container images: pulled from registries, verified, unpacked layer by layer, and cached while there is space.
//!
//! A layer is unpacked once, into its own directory, and shared by all images that contain it; an instance uses mounts
//! of its layers. No image and no registry is trusted. Start reading at [`ensure`], then `pull`; `cache` is what is on
//! disk, and `registry` how registries are called.

mod cache;
mod names;
mod pull;
mod registry;
mod settings;

use std::sync::Arc;

use tarn_base::tasks::join;
use tokio::sync::watch;

pub(super) use cache::stored_images::StoredImage;
pub(super) use cache::{Images, Pins};
pub use registry::connection::is_loopback;
pub use registry::probe_login::probe_registry_login;
pub use settings::{ImageSettings, Registry};

use super::local_host::LocalHost;
use crate::Error;
use pull::pull_image;

/// Ensures an image is in the cache, and returns its exact name. The pull ends when the caller stops waiting.
pub(super) async fn ensure(
    host: &Arc<LocalHost>,
    reference: &str,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<String, Error> {
    let reference = names::parse_reference(reference)?;
    let (progress_sender, mut progress_receiver) = watch::channel(String::new());
    let (own, wanted) = (host.clone(), reference.clone());
    // A separate task, so that a partial pull is cleaned up even when the caller stops waiting.
    let mut pulling = std::pin::pin!(join(tokio::spawn(async move {
        pull_image(&own, &wanted, progress_sender).await.map(|(stored, _)| stored)
    })));
    let stored = loop {
        tokio::select! {
            pulled = &mut pulling => break pulled?,
            Ok(()) = progress_receiver.changed() => {
                let text = progress_receiver.borrow_and_update().clone();
                progress(text);
            }
        }
    };
    Ok(names::exact_name(&reference, &stored.digest))
}

/// Ensures the image of an exact name is in the cache.
pub(super) async fn fetch(host: &Arc<LocalHost>, name: &str) -> Result<(), Error> {
    exact_digest(name)?;
    ensure(host, name, &|_| ()).await.map(drop)
}

/// Returns the cached image of an exact name, pinned for as long as the pins live. It is not pulled here, because the
/// caller holds locks that others wait for.
pub(super) fn hold<'a>(host: &'a LocalHost, name: &str) -> Result<(StoredImage, Pins<'a>), Error> {
    let found = host.images.find_stored_image(&exact_digest(name)?);
    found.ok_or_else(|| Error::Retry(format!("{name} was evicted from the image cache, and is pulled again")))
}

/// Returns the digest in an exact name: an instance is never created from a tag, which may name another image tomorrow.
fn exact_digest(name: &str) -> Result<String, Error> {
    let digest = names::parse_reference(name)?.digest().and_then(names::digest_hex).map(ToOwned::to_owned);
    digest.ok_or_else(|| Error::Permanent(format!("{name} is not an exact image name with a digest")))
}
