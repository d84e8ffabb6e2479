//! Images of unusual but valid shapes, and images that exceed a limit.

use std::fs;

use serde_json::json;
use tarn_driver::{Driver, Error};

use super::faulty_registry::FaultyRegistry;
use super::ignore_progress;
use super::image_builder::{Compression, LayerBuilder, architecture, digest, image, image_for, image_with_config};
use super::registry::DockerRegistry;
use crate::local::test_host::with_test_host;

/// The same layer may appear twice in an image.
#[test]
fn same_layer_may_appear_twice() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let twice = LayerBuilder::new().directory("etc/", 0o755).file("etc/twice", 0o644, b"twice").file(
            "etc/.wh.lost",
            0o644,
            b"",
        );
        let twice = twice.pack(Compression::Gzip);
        let between =
            LayerBuilder::new().directory("etc/", 0o700).file("etc/.wh.twice", 0o644, b"").file("etc/lost", 0o644, b"");
        let made = image(&[twice.clone(), between.pack(Compression::Gzip), twice]);
        let name =
            host.driver.ensure_image(&registry.push("twice", &made).await, "share", &ignore_progress).await.unwrap();
        let spec = host.start_image(&name).await;
        assert_eq!(fs::read_to_string(host.path_inside(&spec, "etc/twice")).unwrap(), "twice", "the upper one counts");
        assert!(!host.path_inside(&spec, "etc/lost").exists());
    });
}

/// The configuration of an image has a size limit, and an image just below it starts.
#[test]
fn image_config_has_size_limit() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let layer = LayerBuilder::new().file("a", 0o644, b"a").pack(Compression::Gzip);
        let saying = |length: usize| {
            let run = json!({ "Env": [format!("LONG={}", "x".repeat(length))], "WorkingDir": "/" });
            image_with_config(architecture(), run, std::slice::from_ref(&layer))
        };
        let name = registry.push("long", &saying(102_000)).await;
        let name = host.driver.ensure_image(&name, "share", &ignore_progress).await.unwrap();
        let spec = host.start_image(&name).await;
        let stream = host.driver.connect(&spec.id).await.unwrap();
        let asked = tarn_link::opening::open(stream, tarn_link::Purpose::Health);
        tokio::time::timeout(crate::local::test_host::TIMEOUT, asked).await.expect("the guest answers").unwrap();
        let too_long = registry.push("too-long", &saying(103_000)).await;
        let Err(Error::Permanent(why)) = host.driver.ensure_image(&too_long, "share", &ignore_progress).await else {
            panic!("it has come")
        };
        assert!(why.contains("its run configuration is too large"), "{why}");
    });
}

/// An index leads to the image for this host by every kind of reference.
#[test]
fn index_leads_to_image_by_every_name() {
    with_test_host(async |host| {
        let registry = FaultyRegistry::start().await;
        let layer = LayerBuilder::new().file("a", 0o644, b"here").pack(Compression::Gzip);
        let (here, other) = (image(&[layer]), image_for("s390x", &[]));
        registry.add("many", &other);
        registry.add("many", &here);
        let entry = |image: &super::image_builder::TestImage, architecture: &str| {
            let platform = json!({ "os": "linux", "architecture": architecture });
            json!({ "digest": digest(&image.manifest), "size": 1, "platform": platform })
        };
        let index = json!({ "schemaVersion": 2, "manifests": [entry(&other, "s390x"), entry(&here, architecture())] });
        let index = serde_json::to_vec(&index).unwrap();
        for tag in ["latest".to_owned(), "1".to_owned(), digest(&index)] {
            registry.respond(&format!("/v2/many/manifests/{tag}"), &index, |_| ());
        }
        let many = format!("{}/many", registry.address);
        let exact = format!("{many}@{}", digest(&here.manifest));
        let by_index = format!("{many}:1@{}", digest(&index));
        for name in [&by_index, &format!("{many}@{}", digest(&index)), &format!("{many}:1"), &many, &exact] {
            assert_eq!(host.driver.ensure_image(name, "share", &ignore_progress).await.unwrap(), exact, "{name}");
        }
        assert_eq!(registry.count(&digest(&here.blobs[1])), 1, "it is fetched once");
        assert_eq!(registry.count(&digest(&index)), 1, "what is here by its digest is not looked up");
        let spec = host.start_image(&exact).await;
        assert_eq!(fs::read_to_string(host.path_inside(&spec, "a")).unwrap(), "here");
    });
}
