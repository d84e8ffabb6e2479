//! Container images: pulled from registries, verified, unpacked layer by layer, and cached while there is space.
//!
//! A layer is unpacked once, into its own directory, and shared by all images that contain it; an instance uses mounts
//! of its layers. No image and no registry is trusted. Start reading at [`ensure`], then `pull`; `cache` is what is on
//! disk, and `registry` how registries are called.

mod cache;
mod pull;
mod registry;
mod settings;

use std::sync::Arc;

use tarn_base::tasks::join;
use tarn_model::images::Reference;
use tokio::sync::watch;

pub(super) use cache::stored_images::StoredImage;
pub(super) use cache::{Images, Pins};
pub use registry::connection::is_loopback;
pub use registry::probe_registry_login;
pub use settings::{ImageSettings, Registry};
pub(super) use tarn_model::images::{digest_hex, is_digest_hex};

use super::local_host::LocalHost;
use crate::Error;
use pull::pull_image;

/// Ensures an image is in the cache, and returns its exact name. The pull ends when the caller stops waiting. Pulls of
/// one share get their turns together.
pub(super) async fn ensure(
    host: &Arc<LocalHost>,
    reference: &str,
    share: &str,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<String, Error> {
    let reference = parse_reference(reference)?;
    let (progress_sender, mut progress_receiver) = watch::channel(String::new());
    let (own, wanted, share) = (host.clone(), reference.clone(), Arc::<str>::from(share));
    // A separate task, so that a partial pull is cleaned up even when the caller stops waiting.
    let mut pulling = std::pin::pin!(join(tokio::spawn(async move {
        pull_image(&own, &wanted, share, progress_sender).await.map(|(stored, _)| stored)
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
    Ok(exact_name(&reference, &stored.digest))
}

/// Ensures the image of an exact name is in the cache.
pub(super) async fn fetch(host: &Arc<LocalHost>, name: &str, share: &str) -> Result<(), Error> {
    exact_digest(name)?;
    ensure(host, name, share, &|_| ()).await.map(drop)
}

/// Returns the cached image of an exact name, pinned for as long as the pins live. It is not pulled here, because the
/// caller holds locks that others wait for.
pub(super) fn hold<'a>(host: &'a LocalHost, name: &str) -> Result<(StoredImage, Pins<'a>), Error> {
    let found = host.images.find_stored_image(&exact_digest(name)?);
    found.ok_or_else(|| Error::Retry(format!("{name} was evicted from the image cache, and is pulled again")))
}

/// Returns the digest in an exact name: an instance is never created from a tag, which may name another image tomorrow.
fn exact_digest(name: &str) -> Result<String, Error> {
    let digest = parse_reference(name)?.digest().and_then(digest_hex).map(ToOwned::to_owned);
    digest.ok_or_else(|| Error::Permanent(format!("{name} is not an exact image name with a digest")))
}

/// Parses a name: `debian` is `docker.io/library/debian:latest`.
fn parse_reference(text: &str) -> Result<Reference, Error> {
    let shown = tarn_base::plain(if text.is_empty() { "nothing" } else { text }, 200);
    tarn_model::images::parse(text)
        .map_err(|why| Error::Permanent(format!("{shown} is not the name of an image: {why}")))
}

/// The exact name of an image.
fn exact_name(reference: &Reference, digest: &str) -> String {
    format!("{}/{}@sha256:{digest}", reference.registry(), reference.repository())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_expanded() {
        let whole = |text: &str| parse_reference(text).unwrap().to_string();
        assert_eq!(whole("debian"), "docker.io/library/debian:latest");
        assert_eq!(whole("user/tool:1"), "docker.io/user/tool:1");
        assert_eq!(whole("127.0.0.1:5000/a/b"), "127.0.0.1:5000/a/b:latest");
        assert_eq!(whole("GHCR.io/a"), "ghcr.io/a:latest");
        assert_eq!(whole("index.Docker.io/a"), "docker.io/library/a:latest");
        let digest = "0".repeat(64);
        let name = exact_name(&parse_reference("ghcr.io/a/b:c").unwrap(), &digest);
        assert_eq!(name, format!("ghcr.io/a/b@sha256:{digest}"));
        assert_eq!(digest_hex(parse_reference(&name).unwrap().digest().unwrap()), Some(digest.as_str()));
    }

    #[test]
    fn invalid_names_are_refused() {
        let upper = format!("a@sha256:{}", "A".repeat(64));
        for wrong in ["", "Debian", "a b", "../etc", "a:b:c", "http://x/y", "a@sha256:12", &upper, "a\nb"] {
            let Err(Error::Permanent(why)) = parse_reference(wrong) else { panic!("{wrong} is a name") };
            assert!(why.contains("is not the name of an image") && !why.contains('\n'), "{why}");
        }
    }
}
