//! Pulls that cannot succeed, and their error messages.

use tarn_driver::local::{ImageSettings, Registry};
use tarn_driver::{Driver, Error};

use super::faulty_registry::FaultyRegistry;
use super::ignore_progress;
use super::image_builder::{Compression, LayerBuilder, digest, image, image_for};
use super::registry::DockerRegistry;
use crate::local::test_host::{TestHost, loopback_images, with_test_host, with_test_host_for_images};

fn small_image() -> super::image_builder::TestImage {
    image(&[LayerBuilder::new().file("a", 0o644, b"a").pack(Compression::Gzip)])
}

async fn refusal_of(host: &TestHost, reference: &str) -> String {
    match host.driver.ensure_image(reference, "share", &ignore_progress).await {
        Err(Error::Permanent(why)) => why,
        other => panic!("{reference}: {other:?}"),
    }
}

/// The message says which failure it is.
#[test]
fn failures_are_distinguished() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let address = &registry.address;
        registry.push("there", &small_image()).await;
        let other = registry.push("other", &image_for("s390x", &[])).await;
        for (reference, expected) in [
            ("Not A Name".to_owned(), "is not the name of an image"),
            (format!("{address}/nowhere:1"), "has no such repository, tag or digest"),
            (format!("{address}/there:2"), "has no such repository, tag or digest"),
            (other, "available: linux/s390x"),
        ] {
            let why = refusal_of(host, &reference).await;
            assert!(why.contains(expected), "{reference}: {why}");
        }
    });
}

/// Two registries that require a login: one is configured with a wrong password, the other correctly under its second
/// name.
async fn with_logins() -> ((DockerRegistry, DockerRegistry, String), ImageSettings) {
    let (first, second) = (DockerRegistry::with_login().await, DockerRegistry::with_login().await);
    let login = |host: &str, password: &str| {
        let (username, password) = (Some("anna".to_owned()), Some(password.to_owned()));
        Registry { host: host.to_owned(), username, password, plain_http: true, ..Registry::default() }
    };
    let named = first.address.replace("127.0.0.1", "localhost");
    let registries = vec![login(&named, "hunter2"), login(&second.address, "wrong-one")];
    ((first, second, named), ImageSettings { registries, ..loopback_images() })
}

/// A login is used, and its password never shown.
#[test]
fn login_is_used_and_never_shown() {
    with_test_host_for_images(with_logins, async |host, (first, second, named)| {
        let refusal = refusal_of(host, &first.push("closed", &small_image()).await).await;
        assert!(refusal.contains("has no login there"), "{refusal}");
        let refusal = refusal_of(host, &second.push("closed", &small_image()).await).await;
        assert!(refusal.contains("rejects the login") && !refusal.contains("wrong-one"), "{refusal}");
        assert!(host.driver.ensure_image(&format!("{named}/closed:1"), "share", &ignore_progress).await.is_ok());
    });
}

/// Wrong bytes are detected, and a broken download is resumed.
#[test]
fn wrong_bytes_are_detected_and_broken_download_resumes() {
    with_test_host(async |host| {
        let registry = FaultyRegistry::start().await;
        let content: Vec<u8> = (0..200_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        // One changed byte of a file: it can still be unpacked, so only the digest reveals it.
        let plain = image(&[LayerBuilder::new().file("a", 0o644, &content).pack(Compression::Plain)]);
        let mut wrong = plain.blobs[1].clone();
        wrong[1000] ^= 1;
        let reference = registry.add("wrong", &plain);
        registry.respond(&format!("/v2/wrong/blobs/{}", digest(&plain.blobs[1])), &wrong, |_| ());
        let refusal = refusal_of(host, &reference).await;
        assert!(
            refusal.contains(&format!("the data from {} does not match its digest", registry.address)),
            "{refusal}"
        );
        let made = image(&[LayerBuilder::new().file("a", 0o644, &content).pack(Compression::Zstd)]);
        let blob = format!("blobs/{}", digest(&made.blobs[1]));
        let reference = registry.add("manifest", &made);
        let exact = format!("{}@{}", reference.trim_end_matches(":1"), digest(b"another manifest"));
        registry.respond(&format!("/v2/manifest/manifests/{}", digest(b"another manifest")), &made.manifest, |_| ());
        assert!(refusal_of(host, &exact).await.contains("does not match its digest"));
        let reference = registry.add("cut", &made);
        registry.respond(&format!("/v2/cut/{blob}"), &made.blobs[1], |response| response.is_cut = true);
        let name = host.driver.ensure_image(&reference, "share", &ignore_progress).await.unwrap();
        let half = made.blobs[1].len() / 2;
        assert!(registry.requests.lock().unwrap().contains(&format!("/v2/cut/{blob} from {half}")));
        let spec = host.start_image(&name).await;
        assert_eq!(std::fs::read(host.path_inside(&spec, "a")).unwrap(), content);
    });
}

/// A document that is too long is not read to its end.
#[test]
fn oversized_document_is_refused() {
    with_test_host(async |host| {
        let registry = FaultyRegistry::start().await;
        registry.respond("/v2/endless/manifests/1", &vec![b' '; 5 << 20], |_| ());
        let refusal = refusal_of(host, &format!("{}/endless:1", registry.address)).await;
        assert!(refusal.contains("does not reach a registry at"), "{refusal}");
        registry.respond("/v2/odd/manifests/1", b"{\"schemaVersion\": 1}", |_| ());
        assert!(refusal_of(host, &format!("{}/odd:1", registry.address)).await.contains("schema 1"));
    });
}

/// An unavailable registry is retried and then reported as unreachable.
#[test]
fn unavailable_registry_is_retried_then_unreachable() {
    with_test_host(async |host| {
        let registry = FaultyRegistry::start().await;
        let busy = |status: u16| format!("/v2/busy-{status}/manifests/1");
        for status in [429, 503] {
            registry.respond(&busy(status), b"", |response| response.status = status);
        }
        let name = |status: u16| format!("{}/busy-{status}:1", registry.address);
        let (often, cannot) = (name(429), name(503));
        let (often, cannot) = tokio::join!(refusal_of(host, &often), refusal_of(host, &cannot));
        assert!(often.contains("reports too many requests from this cloud; try again later"), "{often}");
        assert!(cannot.contains("is unavailable (status 503); try again later"), "{cannot}");
        assert_eq!((registry.count(&busy(429)), registry.count(&busy(503))), (3, 3));
        // A registry that recovers is asked only as often as necessary.
        let reference = registry.add("again", &small_image());
        registry.respond("/v2/again/manifests/1", b"", |response| response.status = 503);
        registry.respond_next("/v2/again/manifests/1", &small_image().manifest, |_| ());
        host.driver.ensure_image(&reference, "share", &ignore_progress).await.unwrap();
        assert_eq!(registry.count("/v2/again/manifests/1"), 2);
    });
}
