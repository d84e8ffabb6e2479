//! Pulls that cannot work, and what their owners are told.

use tarn_driver::local::{ImageSettings, Registry};
use tarn_driver::{Driver, Error};

use super::false_registry::FalseRegistry;
use super::maker::{Packing, Writing, digest, image, image_for};
use super::quiet;
use super::registry::DockerRegistry;
use crate::local::machine::{Machine, on_a_machine, on_a_machine_with};

fn small() -> super::maker::Made {
    image(&[Writing::new().file("a", 0o644, b"a").pack(Packing::Gzip)])
}

async fn why(machine: &Machine, reference: &str) -> String {
    match machine.driver.ensure_image(reference, &quiet).await {
        Err(Error::Permanent(why)) => why,
        other => panic!("{reference}: {other:?}"),
    }
}

#[test]
fn a_failure_says_which_it_is() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let address = &registry.address;
        registry.push("there", &small()).await;
        let other = registry.push("other", &image_for("s390x", &[])).await;
        for (reference, words) in [
            ("Not A Name".to_owned(), "is not the name of an image"),
            (format!("{address}/nowhere:1"), "has no such repository, tag or digest"),
            (format!("{address}/there:2"), "has no such repository, tag or digest"),
            (other, "available: linux/s390x"),
        ] {
            let why = why(machine, &reference).await;
            assert!(why.contains(words), "{reference}: {why}");
        }
        // It is held without anybody listening at it, so that no other test can get it meanwhile.
        let held = tokio::net::TcpSocket::new_v4().unwrap();
        held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let closed = held.local_addr().unwrap();
        let why = why(machine, &format!("{closed}/a")).await;
        assert!(why.contains(&format!("the registry {closed} cannot be reached: Connection refused")), "{why}");
    });
}

/// Two registries that want to know who asks, and logins there: a wrong one for one of them, the right one for the other under
/// its second name.
async fn with_logins() -> ((DockerRegistry, DockerRegistry, String), ImageSettings) {
    let (first, second) = (DockerRegistry::with_login().await, DockerRegistry::with_login().await);
    let login = |host: &str, password: &str| {
        let (username, password) = (Some("anna".to_owned()), Some(password.to_owned()));
        Registry { host: host.to_owned(), username, password, plain_http: true, ..Registry::default() }
    };
    let named = first.address.replace("127.0.0.1", "localhost");
    let registries = vec![login(&named, "hunter2"), login(&second.address, "wrong-one")];
    ((first, second, named), ImageSettings { registries, ..ImageSettings::default() })
}

#[test]
fn a_login_is_used_and_never_shown() {
    on_a_machine_with(with_logins, async |machine, (first, second, named)| {
        let said = why(machine, &first.push("closed", &small()).await).await;
        assert!(said.contains("has no login there"), "{said}");
        let said = why(machine, &second.push("closed", &small()).await).await;
        assert!(said.contains("rejects the login") && !said.contains("wrong-one"), "{said}");
        assert!(machine.driver.ensure_image(&format!("{named}/closed:1"), &quiet).await.is_ok());
    });
}

#[test]
fn wrong_bytes_are_found_out_and_a_broken_connection_is_taken_up_again() {
    on_a_machine(async |machine| {
        let registry = FalseRegistry::start().await;
        let content: Vec<u8> = (0..200_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        // One other byte of a file: it can still be unpacked, so that nothing but the digest says it.
        let plain = image(&[Writing::new().file("a", 0o644, &content).pack(Packing::Plain)]);
        let mut wrong = plain.blobs[1].clone();
        wrong[1000] ^= 1;
        let reference = registry.add("wrong", &plain);
        registry.answer(&format!("/v2/wrong/blobs/{}", digest(&plain.blobs[1])), &wrong, |_| ());
        let said = why(machine, &reference).await;
        assert!(said.contains(&format!("the data from {} does not match its digest", registry.address)), "{said}");
        let made = image(&[Writing::new().file("a", 0o644, &content).pack(Packing::Zstd)]);
        let blob = format!("blobs/{}", digest(&made.blobs[1]));
        let reference = registry.add("manifest", &made);
        let exact = format!("{}@{}", reference.trim_end_matches(":1"), digest(b"another manifest"));
        registry.answer(&format!("/v2/manifest/manifests/{}", digest(b"another manifest")), &made.manifest, |_| ());
        assert!(why(machine, &exact).await.contains("does not match its digest"));
        let reference = registry.add("cut", &made);
        registry.answer(&format!("/v2/cut/{blob}"), &made.blobs[1], |answer| answer.is_cut = true);
        let name = machine.driver.ensure_image(&reference, &quiet).await.unwrap();
        let half = made.blobs[1].len() / 2;
        assert!(registry.asked.lock().unwrap().contains(&format!("/v2/cut/{blob} from {half}")));
        let spec = machine.start_image(&name).await;
        assert_eq!(std::fs::read(machine.seen(&spec, "a")).unwrap(), content);
    });
}

#[test]
fn a_document_without_end_is_not_read_to_its_end() {
    on_a_machine(async |machine| {
        let registry = FalseRegistry::start().await;
        registry.answer("/v2/endless/manifests/1", &vec![b' '; 5 << 20], |_| ());
        let said = why(machine, &format!("{}/endless:1", registry.address)).await;
        assert!(said.contains("a document that is too long"), "{said}");
        registry.answer("/v2/odd/manifests/1", b"{\"schemaVersion\": 1}", |_| ());
        assert!(why(machine, &format!("{}/odd:1", registry.address)).await.contains("schema 1"));
    });
}

#[test]
fn one_that_cannot_now_is_asked_again_and_then_said_to_be_unreachable() {
    on_a_machine(async |machine| {
        let registry = FalseRegistry::start().await;
        let busy = |status: u16| format!("/v2/busy-{status}/manifests/1");
        for status in [429, 503] {
            registry.answer(&busy(status), b"", |answer| answer.status = status);
        }
        let name = |status: u16| format!("{}/busy-{status}:1", registry.address);
        let (often, cannot) = (name(429), name(503));
        let (often, cannot) = tokio::join!(why(machine, &often), why(machine, &cannot));
        let begins = format!("the registry {} cannot be reached: ", registry.address);
        for (said, words) in
            [(often, "it reports too many requests from this host"), (cannot, "it responds with status 503")]
        {
            assert!(said.contains(&format!("{begins}{words}; it was tried 3 times")), "{said}");
        }
        assert_eq!((registry.count(&busy(429)), registry.count(&busy(503))), (3, 3));
        // One that can again is asked no more than it takes.
        let reference = registry.add("again", &small());
        registry.answer("/v2/again/manifests/1", b"", |answer| answer.status = 503);
        registry.then("/v2/again/manifests/1", &small().manifest, |_| ());
        machine.driver.ensure_image(&reference, &quiet).await.unwrap();
        assert_eq!(registry.count("/v2/again/manifests/1"), 2);
    });
}
