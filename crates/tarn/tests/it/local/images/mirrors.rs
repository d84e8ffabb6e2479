//! Mirrors: they are asked first, and whatever is wrong with them is nobody's trouble.

use tarn_driver::Driver;
use tarn_driver::local::{ImageSettings, Registry};

use super::false_registry::FalseRegistry;
use super::maker::{Made, Packing, Writing, digest, image};
use super::quiet;
use super::registry::DockerRegistry;
use crate::local::machine::on_a_machine_with;

fn made() -> Made {
    let content: Vec<u8> = (0..20_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let other = Writing::new().file("b", 0o644, b"b").pack(Packing::Gzip);
    image(&[Writing::new().file("a", 0o644, &content).pack(Packing::Zstd), other])
}

fn with_mirrors(host: &str, mirrors: Vec<String>) -> ImageSettings {
    let registries = vec![Registry { host: host.to_owned(), mirrors, plain_http: true, ..Registry::default() }];
    ImageSettings { registries, ..ImageSettings::default() }
}

/// A registry that nobody can reach, and two mirrors of it, of which the first has nothing.
async fn without_the_registry() -> ((DockerRegistry, DockerRegistry), ImageSettings) {
    let (empty, mirror) = (DockerRegistry::start().await, DockerRegistry::start().await);
    let settings = with_mirrors("registry.invalid", vec![empty.address.clone(), mirror.address.clone()]);
    ((empty, mirror), settings)
}

#[test]
fn mirrors_are_asked_first() {
    on_a_machine_with(without_the_registry, async |machine, (_empty, mirror)| {
        mirror.push("a/b", &made()).await;
        let name = machine.driver.ensure_image("registry.invalid/a/b:1", &quiet).await.unwrap();
        assert_eq!(name, format!("registry.invalid/a/b@{}", digest(&made().manifest)));
    });
}

/// A registry and a mirror of it.
async fn with_one() -> ((FalseRegistry, FalseRegistry), ImageSettings) {
    let (own, mirror) = (FalseRegistry::start().await, FalseRegistry::start().await);
    let settings = with_mirrors(&own.address, vec![mirror.address.clone()]);
    ((own, mirror), settings)
}

/// Pulls an image by way of a mirror that has it, but does something wrong; what was asked of the mirror, and of the registry.
fn spoiled(how: impl Fn(&FalseRegistry, &Made) + 'static) -> (Vec<String>, Vec<String>) {
    let said = std::sync::Mutex::new((Vec::new(), Vec::new()));
    on_a_machine_with(with_one, async |machine, (own, mirror)| {
        let made = made();
        let reference = own.add("x", &made);
        mirror.add("x", &made);
        how(&mirror, &made);
        let name = machine.driver.ensure_image(&reference, &quiet).await.unwrap();
        assert_eq!(name, format!("{}/x@{}", own.address, digest(&made.manifest)));
        assert_eq!(machine.layers().len(), 2, "nothing half made is left");
        *said.lock().unwrap() = (mirror.asked.lock().unwrap().clone(), own.asked.lock().unwrap().clone());
    });
    said.into_inner().unwrap()
}

#[test]
fn one_that_shows_a_page_for_people_is_asked_once() {
    let (mirror, own) = spoiled(|mirror, _| mirror.answer("/v2/x/manifests/1", b"<html>Welcome</html>", |_| ()));
    assert_eq!((mirror.len(), own.len()), (1, 4), "a manifest, a configuration and two layers: {mirror:?} {own:?}");
}

#[test]
fn one_that_cannot_now_is_asked_once() {
    let (mirror, own) = spoiled(|mirror, _| mirror.answer("/v2/x/manifests/1", b"", |answer| answer.status = 503));
    assert_eq!((mirror.len(), own.len()), (1, 4), "{mirror:?} {own:?}");
}

#[test]
fn wrong_bytes_of_one_are_fetched_anew() {
    let (mirror, own) = spoiled(|mirror, made| {
        let mut wrong = made.blobs[1].clone();
        let last = wrong.len() - 1;
        wrong[last] ^= 1;
        mirror.answer(&format!("/v2/x/blobs/{}", digest(&made.blobs[1])), &wrong, |_| ());
    });
    let blob = format!("/v2/x/blobs/{}", digest(&made().blobs[1]));
    assert!(mirror.contains(&blob) && own.contains(&blob), "{mirror:?} {own:?}");
    let (mirror, own) = spoiled(|mirror, made| {
        mirror.answer(&format!("/v2/x/blobs/{}", digest(&made.blobs[0])), b"{}", |_| ());
    });
    assert!(mirror.len() == 2 && own.len() == 3, "the configuration is checked at once: {mirror:?} {own:?}");
}

#[test]
fn where_one_broke_off_the_registry_goes_on() {
    let blob = format!("/v2/x/blobs/{}", digest(&made().blobs[1]));
    let half = made().blobs[1].len() / 2;
    let cut = blob.clone();
    let (mirror, own) = spoiled(move |mirror, made| mirror.answer(&cut, &made.blobs[1], |answer| answer.is_cut = true));
    assert!(mirror.contains(&blob) && own.contains(&format!("{blob} from {half}")), "{mirror:?} {own:?}");
}
