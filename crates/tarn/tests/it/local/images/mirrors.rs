//! Mirrors: they are asked first, and their failures do not affect the pull.

use tarn_driver::Driver;
use tarn_driver::local::{ImageSettings, Registry};

use super::faulty_registry::FaultyRegistry;
use super::ignore_progress;
use super::image_builder::{Compression, LayerBuilder, TestImage, digest, image};
use super::registry::DockerRegistry;
use crate::local::test_host::{loopback_images, with_test_host_for_images};

fn two_layer_image() -> TestImage {
    let content: Vec<u8> = (0..20_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let other = LayerBuilder::new().file("b", 0o644, b"b").pack(Compression::Gzip);
    image(&[LayerBuilder::new().file("a", 0o644, &content).pack(Compression::Zstd), other])
}

fn with_mirrors(host: &str, mirrors: Vec<String>) -> ImageSettings {
    let registries = vec![Registry { host: host.to_owned(), mirrors, plain_http: true, ..Registry::default() }];
    ImageSettings { registries, ..loopback_images() }
}

/// An unreachable registry with two mirrors, of which the first is empty.
async fn unreachable_registry_with_mirrors() -> ((DockerRegistry, DockerRegistry), ImageSettings) {
    let (empty, mirror) = (DockerRegistry::start().await, DockerRegistry::start().await);
    let settings = with_mirrors("registry.invalid", vec![empty.address.clone(), mirror.address.clone()]);
    ((empty, mirror), settings)
}

/// Mirrors are asked before the registry.
#[test]
fn mirrors_are_asked_first() {
    with_test_host_for_images(unreachable_registry_with_mirrors, async |host, (_empty, mirror)| {
        mirror.push("a/b", &two_layer_image()).await;
        let name = host.driver.ensure_image("registry.invalid/a/b:1", "share", &ignore_progress).await.unwrap();
        assert_eq!(name, format!("registry.invalid/a/b@{}", digest(&two_layer_image().manifest)));
    });
}

/// A registry and a mirror of it.
async fn registry_with_mirror() -> ((FaultyRegistry, FaultyRegistry), ImageSettings) {
    let (own, mirror) = (FaultyRegistry::start().await, FaultyRegistry::start().await);
    let settings = with_mirrors(&own.address, vec![mirror.address.clone()]);
    ((own, mirror), settings)
}

/// Pulls an image through a mirror that has it but misbehaves. Returns the requests to the mirror and to the registry.
fn pull_by_faulty_mirror(how: impl Fn(&FaultyRegistry, &TestImage) + 'static) -> (Vec<String>, Vec<String>) {
    let requests = std::sync::Mutex::new((Vec::new(), Vec::new()));
    with_test_host_for_images(registry_with_mirror, async |host, (own, mirror)| {
        let made = two_layer_image();
        let reference = own.add("x", &made);
        mirror.add("x", &made);
        how(&mirror, &made);
        let name = host.driver.ensure_image(&reference, "share", &ignore_progress).await.unwrap();
        assert_eq!(name, format!("{}/x@{}", own.address, digest(&made.manifest)));
        assert_eq!(host.layers().len(), 2, "nothing half made is left");
        *requests.lock().unwrap() = (mirror.requests.lock().unwrap().clone(), own.requests.lock().unwrap().clone());
    });
    requests.into_inner().unwrap()
}

/// A mirror that returns an HTML page is asked once.
#[test]
fn mirror_with_html_is_asked_once() {
    let (mirror, own) =
        pull_by_faulty_mirror(|mirror, _| mirror.respond("/v2/x/manifests/1", b"<html>Welcome</html>", |_| ()));
    assert_eq!((mirror.len(), own.len()), (1, 4), "a manifest, a configuration and two layers: {mirror:?} {own:?}");
}

/// A mirror that is unavailable is asked once.
#[test]
fn unavailable_mirror_is_asked_once() {
    let (mirror, own) =
        pull_by_faulty_mirror(|mirror, _| mirror.respond("/v2/x/manifests/1", b"", |response| response.status = 503));
    assert_eq!((mirror.len(), own.len()), (1, 4), "{mirror:?} {own:?}");
}

/// Wrong bytes from a mirror are fetched again from the registry.
#[test]
fn wrong_bytes_of_mirror_are_fetched_from_registry() {
    let (mirror, own) = pull_by_faulty_mirror(|mirror, made| {
        let mut wrong = made.blobs[1].clone();
        let last = wrong.len() - 1;
        wrong[last] ^= 1;
        mirror.respond(&format!("/v2/x/blobs/{}", digest(&made.blobs[1])), &wrong, |_| ());
    });
    let blob = format!("/v2/x/blobs/{}", digest(&two_layer_image().blobs[1]));
    assert!(mirror.contains(&blob) && own.contains(&blob), "{mirror:?} {own:?}");
    let (mirror, own) = pull_by_faulty_mirror(|mirror, made| {
        mirror.respond(&format!("/v2/x/blobs/{}", digest(&made.blobs[0])), b"{}", |_| ());
    });
    assert!(mirror.len() == 2 && own.len() == 3, "the configuration is checked at once: {mirror:?} {own:?}");
}

/// The registry continues a download where the mirror broke off.
#[test]
fn registry_continues_where_mirror_broke_off() {
    let blob = format!("/v2/x/blobs/{}", digest(&two_layer_image().blobs[1]));
    let half = two_layer_image().blobs[1].len() / 2;
    let cut = blob.clone();
    let (mirror, own) = pull_by_faulty_mirror(move |mirror, made| {
        mirror.respond(&cut, &made.blobs[1], |response| response.is_cut = true)
    });
    assert!(mirror.contains(&blob) && own.contains(&format!("{blob} from {half}")), "{mirror:?} {own:?}");
}
