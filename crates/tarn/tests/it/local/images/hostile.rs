//! Images that mean harm. Each is refused or harmless, and nothing outside of it changes.

use std::fs;

use tarn_driver::{Driver, Error};

use super::maker::{Packing, Writing, image};
use super::quiet;
use super::registry::DockerRegistry;
use crate::local::machine::{Machine, on_a_machine};

/// What is pulled and refused.
async fn refused(machine: &Machine, registry: &DockerRegistry, name: &str, layer: Writing) -> String {
    let reference = registry.push(name, &image(&[layer.pack(Packing::Gzip)])).await;
    match machine.driver.ensure_image(&reference, &quiet).await {
        Err(Error::Permanent(why)) => why,
        other => panic!("{name} was not refused: {other:?}"),
    }
}

#[test]
fn what_leads_out_of_an_image_is_refused() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        let up = format!("{}{}", "../".repeat(20), victim.strip_prefix("/").unwrap().display());
        for (name, layer, words) in [
            ("up", Writing::new().file(&up, 0o644, b"harm"), "leads out of the image"),
            ("link-up", Writing::new().hard_link("a", &up), "leads out of the image"),
            ("no-such", Writing::new().hard_link("a", victim.to_str().unwrap()), "a file that it does not have"),
            ("nothing", Writing::new().file("a/.wh.", 0o644, b""), "a whiteout without a name"),
            ("hidden-up", Writing::new().file("a/.wh...", 0o644, b""), "a whiteout without a name"),
            ("below-a-file", Writing::new().file("a", 0o644, b"").file("a/b", 0o644, b""), "not a directory in it"),
        ] {
            let why = refused(machine, &registry, name, layer).await;
            assert!(why.contains(words) && why.contains(name), "{name}: {why}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(machine.layers(), Vec::<String>::new(), "nothing is left of what was refused");
    });
}

#[test]
fn links_and_odd_names_of_an_image_stay_inside() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        let (place, absolute) = (outside.path().display().to_string(), victim.display().to_string());
        let layer = Writing::new()
            // A file through a link that leads out, and one with the path of something outside.
            .directory(&place[1..], 0o755)
            .symlink("escape", &place)
            .file("escape/victim", 0o644, b"harm")
            .file(&absolute, 0o644, b"harm")
            // What every instance needs is a link in the image, or something else.
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
        let name = registry.push("odd", &image(&[layer.pack(Packing::Zstd)])).await;
        let name = machine.driver.ensure_image(&name, &quiet).await.unwrap();
        let spec = machine.start_image(&name).await;
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(crate::local::machine::names(outside.path()), ["victim"]);
        assert!(machine.seen(&spec, "dev/null").exists() && machine.seen(&spec, "proc/1").exists());
        assert!(fs::metadata(machine.seen(&spec, ".tarn/guest")).unwrap().len() > 100_000, "the guest is the guest");
        assert!(machine.seen(&spec, "two\nlines\x01").exists() && !machine.seen(&spec, "disk").exists());
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(machine.seen(&spec, "attached"), "user.odd", &mut value).unwrap();
        assert_eq!(&value[..length], b"9 a=b\n\0\n=");
        for link in ["etc", "proc", "tmp", "run", "mnt"] {
            assert!(fs::symlink_metadata(machine.seen(&spec, link)).unwrap().is_dir(), "{link} is a directory");
        }
    });
}

#[test]
fn what_would_need_too_much_memory_is_refused() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        // Names and notes are read whole before anything is done with them. These are of nothing but zeros, and small when packed.
        let long = vec![b'0'; 100 << 20];
        for (name, kind) in [("notes", tar::EntryType::XHeader), ("name", tar::EntryType::GNULongName)] {
            let layer = Writing::new().entry(kind, name, "", 0o644, &long).file("a", 0o644, b"a");
            let why = refused(machine, &registry, name, layer).await;
            assert!(why.contains("memory"), "{name}: {why}");
        }
        assert_eq!(machine.layers(), Vec::<String>::new());
    });
}

#[test]
fn what_is_attached_to_a_file_and_does_not_fit_there_is_no_full_disk() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let layer = Writing::new().attached(&[("user.large", &[7; 40_000])]).file("a", 0o644, b"");
        let reference = registry.push("attached", &image(&[layer.pack(Packing::Gzip)])).await;
        // Not every filesystem has such a limit.
        match machine.driver.ensure_image(&reference, &quiet).await {
            Ok(_) => {}
            Err(Error::Permanent(why)) => {
                assert!(why.contains("bytes of extended attributes are on a file in it"), "{why}")
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_layer_that_hides_everything_below_it_does() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let lower = Writing::new().file("old", 0o644, b"old").directory("usr/", 0o755).file("usr/old", 0o644, b"old");
        let upper = Writing::new().file(".wh..wh..opq", 0o644, b"").file("usr/new", 0o644, b"new");
        let made = image(&[lower.pack(Packing::Gzip), upper.pack(Packing::Gzip)]);
        let name = machine.driver.ensure_image(&registry.push("opaque", &made).await, &quiet).await.unwrap();
        let spec = machine.start_image(&name).await;
        assert!(machine.seen(&spec, "usr/new").exists());
        assert!(!machine.seen(&spec, "old").exists() && !machine.seen(&spec, "usr/old").exists());
    });
}

#[test]
fn what_is_broken_or_without_end_is_refused() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let mut torn = Writing::new().file("a", 0o644, &[7; 4096]).pack(Packing::Plain);
        torn.bytes.truncate(2000);
        torn.archive = super::maker::digest(&torn.bytes);
        let mut noise = torn.clone();
        noise.bytes = (0..4096u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        noise.archive = super::maker::digest(&noise.bytes);
        let mut lies = Writing::new().file("a", 0o644, b"a").pack(Packing::Gzip);
        lies.archive = super::maker::digest(b"something else");
        for (name, blob, words) in [
            ("torn", torn, "a layer is invalid"),
            ("noise", noise, "a layer is invalid"),
            ("lies", lies, "does not match its digest"),
        ] {
            let reference = registry.push(name, &image(&[blob])).await;
            let Err(Error::Permanent(why)) = machine.driver.ensure_image(&reference, &quiet).await else {
                panic!("{name}")
            };
            assert!(why.contains(words), "{name}: {why}");
        }
        assert_eq!(machine.layers(), Vec::<String>::new());
    });
}
