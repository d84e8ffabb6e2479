//! Malicious images. Each is refused or harmless, and nothing outside it changes.

use std::fs;

use tarn_driver::{Driver, Error};

use super::ignore_progress;
use super::image_builder::{Compression, LayerBuilder, image};
use super::registry::DockerRegistry;
use crate::local::test_host::{TestHost, with_test_host};

/// Pulls an image that must be refused, and returns the message.
async fn pull_refused(host: &TestHost, registry: &DockerRegistry, name: &str, layer: LayerBuilder) -> String {
    let reference = registry.push(name, &image(&[layer.pack(Compression::Gzip)])).await;
    match host.driver.ensure_image(&reference, "share", &ignore_progress).await {
        Err(Error::Permanent(why)) => why,
        other => panic!("{name} was not refused: {other:?}"),
    }
}

/// Paths and links that lead out of an image are refused.
#[test]
fn paths_out_of_image_are_refused() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        let up = format!("{}{}", "../".repeat(20), victim.strip_prefix("/").unwrap().display());
        for (name, layer, expected) in [
            ("up", LayerBuilder::new().file(&up, 0o644, b"harm"), "leads out of the image"),
            ("link-up", LayerBuilder::new().hard_link("a", &up), "leads out of the image"),
            ("no-such", LayerBuilder::new().hard_link("a", victim.to_str().unwrap()), "a file that it does not have"),
            ("nothing", LayerBuilder::new().file("a/.wh.", 0o644, b""), "a whiteout without a name"),
            ("hidden-up", LayerBuilder::new().file("a/.wh...", 0o644, b""), "a whiteout without a name"),
            (
                "below-a-file",
                LayerBuilder::new().file("a", 0o644, b"").file("a/b", 0o644, b""),
                "not a directory in it",
            ),
        ] {
            let why = pull_refused(host, &registry, name, layer).await;
            assert!(why.contains(expected) && why.contains(name), "{name}: {why}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(host.layers(), Vec::<String>::new(), "nothing is left of what was refused");
    });
}

/// Links and odd names of an image have no effect outside it.
#[test]
fn links_and_odd_names_stay_inside() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        let (place, absolute) = (outside.path().display().to_string(), victim.display().to_string());
        let layer = LayerBuilder::new()
            // A file through a link that leads out, and one with the path of a file on the host.
            .directory(&place[1..], 0o755)
            .symlink("escape", &place)
            .file("escape/victim", 0o644, b"harm")
            .file(&absolute, 0o644, b"harm")
            // What every instance needs is a link in the image, or another kind of file.
            .directory("var/", 0o755)
            .symlink("etc", "var")
            .symlink("proc", &place)
            .symlink("tmp", &place)
            .symlink("run", "../../..")
            .symlink("mnt", &place)
            .file("dev", 0o644, b"not a directory")
            .directory(".tarn/", 0o777)
            .file(".tarn/guest", 0o755, b"not the guest")
            .file("two\nlines\x01", 0o644, b"")
            .attached(&[("user.odd", b"9 a=b\n\0\n=")])
            .file("attached", 0o644, b"")
            .entry(tar::EntryType::Block, "disk", "", 0o666, b"");
        let name = registry.push("odd", &image(&[layer.pack(Compression::Zstd)])).await;
        let name = host.driver.ensure_image(&name, "share", &ignore_progress).await.unwrap();
        let spec = host.start_image(&name).await;
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(crate::local::test_host::entry_names(outside.path()), ["victim"]);
        assert!(host.path_inside(&spec, "dev/null").exists() && host.path_inside(&spec, "proc/1").exists());
        assert!(
            fs::metadata(host.path_inside(&spec, ".tarn/guest")).unwrap().len() > 100_000,
            "the guest is the guest"
        );
        assert!(host.path_inside(&spec, "two\nlines\x01").exists() && !host.path_inside(&spec, "disk").exists());
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(host.path_inside(&spec, "attached"), "user.odd", &mut value).unwrap();
        assert_eq!(&value[..length], b"9 a=b\n\0\n=");
        for link in ["etc", "proc", "tmp", "run", "mnt"] {
            assert!(fs::symlink_metadata(host.path_inside(&spec, link)).unwrap().is_dir(), "{link} is a directory");
        }
    });
}

/// Headers that would need too much memory are refused.
#[test]
fn oversized_headers_are_refused() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        // Names and extended headers are read whole before they are used. These consist of zeros and are small when
        // compressed.
        let long = vec![b'0'; 100 << 20];
        for (name, kind) in [("notes", tar::EntryType::XHeader), ("name", tar::EntryType::GNULongName)] {
            let layer = LayerBuilder::new().entry(kind, name, "", 0o644, &long).file("a", 0o644, b"a");
            let why = pull_refused(host, &registry, name, layer).await;
            assert!(why.contains("are too long"), "{name}: {why}");
        }
        assert_eq!(host.layers(), Vec::<String>::new());
    });
}

/// An extended attribute that does not fit is not mistaken for a full disk.
#[test]
fn oversized_attributes_are_not_a_full_disk() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let layer = LayerBuilder::new().attached(&[("user.large", &[7; 40_000])]).file("a", 0o644, b"");
        let reference = registry.push("attached", &image(&[layer.pack(Compression::Gzip)])).await;
        // Not every filesystem has such a limit.
        match host.driver.ensure_image(&reference, "share", &ignore_progress).await {
            Ok(_) => {}
            Err(Error::Permanent(why)) => {
                assert!(why.contains("bytes of extended attributes are on a file in it"), "{why}")
            }
            other => panic!("{other:?}"),
        }
    });
}

/// An opaque layer hides everything below it.
#[test]
fn opaque_layer_hides_everything_below() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let lower =
            LayerBuilder::new().file("old", 0o644, b"old").directory("usr/", 0o755).file("usr/old", 0o644, b"old");
        let upper = LayerBuilder::new().file(".wh..wh..opq", 0o644, b"").file("usr/new", 0o644, b"new");
        let made = image(&[lower.pack(Compression::Gzip), upper.pack(Compression::Gzip)]);
        let name =
            host.driver.ensure_image(&registry.push("opaque", &made).await, "share", &ignore_progress).await.unwrap();
        let spec = host.start_image(&name).await;
        assert!(host.path_inside(&spec, "usr/new").exists());
        assert!(!host.path_inside(&spec, "old").exists() && !host.path_inside(&spec, "usr/old").exists());
    });
}

/// Truncated, random and mislabelled layers are refused.
#[test]
fn broken_layers_are_refused() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let mut torn = LayerBuilder::new().file("a", 0o644, &[7; 4096]).pack(Compression::Plain);
        torn.bytes.truncate(2000);
        torn.archive = super::image_builder::digest(&torn.bytes);
        let mut noise = torn.clone();
        noise.bytes = (0..4096u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        noise.archive = super::image_builder::digest(&noise.bytes);
        let mut lies = LayerBuilder::new().file("a", 0o644, b"a").pack(Compression::Gzip);
        lies.archive = super::image_builder::digest(b"something else");
        for (name, blob, expected) in [
            ("torn", torn, "a layer is invalid"),
            ("noise", noise, "a layer is invalid"),
            ("lies", lies, "does not match its digest"),
        ] {
            let reference = registry.push(name, &image(&[blob])).await;
            let Err(Error::Permanent(why)) = host.driver.ensure_image(&reference, "share", &ignore_progress).await
            else {
                panic!("{name}")
            };
            assert!(why.contains(expected), "{name}: {why}");
        }
        assert_eq!(host.layers(), Vec::<String>::new());
    });
}
