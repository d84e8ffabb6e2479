//! Images of unusual shapes that are right all the same, and those that are just too much.

use std::fs;

use serde_json::json;
use tarn_driver::{Driver, Error};

use super::false_registry::FalseRegistry;
use super::maker::{Packing, Writing, architecture, digest, image, image_for, image_that_says};
use super::quiet;
use super::registry::DockerRegistry;
use crate::local::machine::on_a_machine;

#[test]
fn the_same_layer_may_come_twice() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let twice =
            Writing::new().directory("etc/", 0o755).file("etc/twice", 0o644, b"twice").file("etc/.wh.lost", 0o644, b"");
        let twice = twice.pack(Packing::Gzip);
        let between =
            Writing::new().directory("etc/", 0o700).file("etc/.wh.twice", 0o644, b"").file("etc/lost", 0o644, b"");
        let made = image(&[twice.clone(), between.pack(Packing::Gzip), twice]);
        let name = machine.driver.ensure_image(&registry.push("twice", &made).await, &quiet).await.unwrap();
        let spec = machine.start_image(&name).await;
        assert_eq!(fs::read_to_string(machine.seen(&spec, "etc/twice")).unwrap(), "twice", "the upper one counts");
        assert!(!machine.seen(&spec, "etc/lost").exists());
    });
}

#[test]
fn what_an_image_says_has_a_limit_and_up_to_there_it_starts() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let layer = Writing::new().file("a", 0o644, b"a").pack(Packing::Gzip);
        let saying = |length: usize| {
            let run = json!({ "Env": [format!("LONG={}", "x".repeat(length))], "WorkingDir": "/" });
            image_that_says(architecture(), run, std::slice::from_ref(&layer))
        };
        let name = registry.push("long", &saying(102_000)).await;
        let name = machine.driver.ensure_image(&name, &quiet).await.unwrap();
        let spec = machine.start_image(&name).await;
        let stream = machine.driver.connect(&spec.id).await.unwrap();
        let asked = tarn_link::opening::open(stream, tarn_link::Purpose::Health);
        tokio::time::timeout(crate::local::machine::PATIENCE, asked).await.expect("the guest answers").unwrap();
        let too_long = registry.push("too-long", &saying(103_000)).await;
        let Err(Error::Permanent(why)) = machine.driver.ensure_image(&too_long, &quiet).await else {
            panic!("it has come")
        };
        assert!(why.contains("its run configuration is too large"), "{why}");
    });
}

#[test]
fn an_index_leads_to_the_image_by_every_name() {
    on_a_machine(async |machine| {
        let registry = FalseRegistry::start().await;
        let layer = Writing::new().file("a", 0o644, b"here").pack(Packing::Gzip);
        let (here, other) = (image(&[layer]), image_for("s390x", &[]));
        registry.add("many", &other);
        registry.add("many", &here);
        let entry = |made: &super::maker::Made, own: &str| json!({ "digest": digest(&made.manifest), "size": 1, "platform": { "os": "linux", "architecture": own } });
        let index = json!({ "schemaVersion": 2, "manifests": [entry(&other, "s390x"), entry(&here, architecture())] });
        let index = serde_json::to_vec(&index).unwrap();
        for tag in ["latest".to_owned(), "1".to_owned(), digest(&index)] {
            registry.answer(&format!("/v2/many/manifests/{tag}"), &index, |_| ());
        }
        let many = format!("{}/many", registry.address);
        let exact = format!("{many}@{}", digest(&here.manifest));
        let by_index = format!("{many}:1@{}", digest(&index));
        for name in [&by_index, &format!("{many}@{}", digest(&index)), &format!("{many}:1"), &many, &exact] {
            assert_eq!(machine.driver.ensure_image(name, &quiet).await.unwrap(), exact, "{name}");
        }
        assert_eq!(registry.count(&digest(&here.blobs[1])), 1, "it is fetched once");
        assert_eq!(registry.count(&digest(&index)), 1, "what is here by its digest is not looked up");
        let spec = machine.start_image(&exact).await;
        assert_eq!(fs::read_to_string(machine.seen(&spec, "a")).unwrap(), "here");
    });
}
