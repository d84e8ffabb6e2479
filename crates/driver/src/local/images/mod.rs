//! Container images: pulled from registries, checked, unpacked layer by layer, and kept for as long as there is room.
//!
//! A layer is unpacked once, into a directory of its own, and shared by all images that have it; an instance stands on
//! mounts of its layers. Nothing here trusts an image or a registry. Start reading at [`ensure`], then `layers`, `sending` and
//! `turns`; `cache` and `kept` are what is on disk, `room` and `eviction` what fits there, `sources`,
//! `registries` and `greetings` how registries are asked, `manifests` what they say.

mod cache;
mod names;
mod pull;
mod registry;
mod settings;

use std::sync::Arc;

use tokio::sync::watch;

pub(super) use cache::stored_images::Stored;
pub(super) use cache::{Images, Pins};
pub use registry::connection::is_loopback;
pub use registry::probe_login::greet;
pub use settings::{ImageSettings, Registry};

use super::local_host::LocalHost;
use crate::Error;
use pull::pull_image;

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
    let mut pulling = tokio::spawn(async move { pull_image(&own, &wanted, tell).await.map(|(stored, _)| stored) });
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
