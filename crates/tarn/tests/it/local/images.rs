//! Container images on a real machine: pulled from a real registry and from one that does wrong, looked at as their instances see
//! them. The tests make their images themselves.

mod cache;
mod devices;
mod false_registry;
mod hostile;
mod maker;
mod mirrors;
mod refusals;
mod registry;
mod shapes;
mod tokens;
mod trouble;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use tarn_driver::{Driver, InstanceSpec};

use crate::local::machine::{Machine, PATIENCE, on_a_machine};
use maker::{Packing, Writing, image};
use registry::DockerRegistry;

/// Nobody listens for how far a pull is.
pub(crate) fn quiet(_: String) {}

impl Machine {
    /// An instance of an image that was pulled.
    async fn start_image(&self, name: &str) -> InstanceSpec {
        let spec = InstanceSpec { container: Some(name.to_owned()), ..self.spec() };
        self.start(&spec).await;
        spec
    }

    /// A path in a running instance, as it is seen from there.
    fn seen(&self, spec: &InstanceSpec, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.init(&spec.id))).join(path)
    }

    /// What the guest of an instance was told of its image. It is what the first process becomes, a moment after it was started.
    async fn told(&self, spec: &InstanceSpec) -> tarn_link::Image {
        let path = format!("/proc/{}/environ", self.init(&spec.id));
        let told = async {
            loop {
                let environment = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                if let Some(told) = environment.split('\0').find_map(|pair| pair.strip_prefix("TARN_IMAGE=")) {
                    return serde_json::from_str(told).unwrap();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, told).await.expect("the guest is told")
    }

    /// What is kept of layers.
    fn layers(&self) -> Vec<String> {
        crate::local::machine::names(&self.data.path().join("images/containers/layers"))
    }
}

/// An image that does every legitimate thing, in every packing.
fn thorough() -> maker::Made {
    let lowest = Writing::new()
        .directory("./", 0o755)
        .directory("etc/", 0o755)
        .file("etc/kept", 0o640, b"kept")
        .file("etc/removed", 0o644, b"removed")
        .directory("emptied/", 0o755)
        .file("emptied/old", 0o644, b"old")
        .directory("replaced/", 0o755)
        .file("replaced/old", 0o644, b"old")
        .directory("gone/", 0o755)
        .file("gone/old", 0o644, b"old")
        .symlink("lib", "usr/lib")
        .directory("usr/lib/", 0o755)
        .file("lib/through", 0o644, b"through a link");
    let middle = Writing::new()
        .file("etc/.wh.removed", 0o644, b"")
        .directory("emptied/", 0o755)
        .file("emptied/.wh..wh..opq", 0o644, b"")
        .file("emptied/new", 0o644, b"new")
        .file(".wh.replaced", 0o644, b"")
        .directory("replaced/", 0o700)
        .file("replaced/new", 0o644, b"new")
        .file(".wh.gone", 0o644, b"");
    let long = format!("deep/{}", "name/".repeat(40));
    let highest = Writing::new()
        .file("bin/one", 0o4755, b"program")
        .hard_link("bin/two", "bin/one")
        .hard_link("bin/three", "/bin/two")
        .attached(&[("user.note", b"a note"), ("trusted.overlay.opaque", b"y")])
        .file("attached", 0o644, b"")
        .entry(tar::EntryType::Fifo, "pipe", "", 0o600, b"")
        .entry(tar::EntryType::Char, "null", "", 0o666, b"")
        .directory("closed/", 0o000)
        .file("closed/inner", 0o600, b"inner")
        .directory("sticky/", 0o1777)
        .long(&format!("{long}file"), b"long");
    image(&[lowest.pack(Packing::Plain), middle.pack(Packing::Gzip), highest.pack(Packing::Zstd)])
}

#[test]
fn an_image_is_seen_as_it_was_made() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let reference = registry.push("a/thorough", &thorough()).await;
        let name = machine.driver.ensure_image(&reference, &quiet).await.unwrap();
        let digest = maker::digest(&thorough().manifest);
        assert_eq!(name, format!("{}/a/thorough@{digest}", registry.address));
        let spec = machine.start_image(&name).await;
        let read = |path: &str| fs::read_to_string(machine.seen(&spec, path)).ok();
        assert_eq!(read("etc/kept").as_deref(), Some("kept"));
        for (gone, there) in [
            ("etc/removed", "etc"),
            ("emptied/old", "emptied/new"),
            ("replaced/old", "replaced/new"),
            ("gone", "sticky"),
        ] {
            assert!(!machine.seen(&spec, gone).exists(), "{gone} is hidden");
            assert!(machine.seen(&spec, there).exists(), "{there} is there");
        }
        assert_eq!(read("usr/lib/through").as_deref(), Some("through a link"));
        assert_eq!(read(&format!("deep/{}file", "name/".repeat(40))).as_deref(), Some("long"));
        let found = |path: &str| fs::symlink_metadata(machine.seen(&spec, path)).unwrap();
        let base = found("").uid();
        assert!(base >= 0x4000_0000, "files belong to the instance: {base}");
        let one = found("bin/one");
        assert_eq!((one.mode() & 0o7777, one.nlink(), one.uid() - base, one.mtime()), (0o4755, 3, 0, 1_000_000_000));
        assert_eq!(found("bin/three").ino(), one.ino());
        assert_eq!((found("closed").mode() & 0o7777, found("sticky").mode() & 0o7777), (0o000, 0o1777));
        assert_eq!(found("replaced").mode() & 0o7777, 0o700);
        assert!(found("pipe").file_type().is_fifo());
        assert!(!machine.seen(&spec, "null").exists(), "device files are left out");
        let attached = |name: &str| {
            let mut value = [0; 16];
            rustix::fs::getxattr(machine.seen(&spec, "attached"), name, &mut value)
                .map(|length| value[..length].to_vec())
        };
        assert_eq!(attached("user.note").unwrap(), b"a note");
        assert!(attached("trusted.overlay.opaque").is_err());
        // What every instance needs.
        for path in [
            "etc/resolv.conf",
            "etc/hosts",
            "etc/hostname",
            ".tarn/guest",
            "proc/1",
            "sys/class",
            "dev/null",
            "dev/pts",
            "run",
            "tmp",
        ] {
            assert!(machine.seen(&spec, path).exists(), "{path}");
        }
        assert_eq!(read("etc/hostname").as_deref(), Some("node-0\n"));
        let told = machine.told(&spec).await;
        assert_eq!(told.environment, [("GREETING".to_owned(), "hello world".to_owned())]);
        assert_eq!((told.user.as_deref(), told.directory.as_deref()), (Some("1000:1000"), Some("/srv")));
    });
}

#[test]
fn the_disk_outlives_a_restart_and_the_registry_is_not_needed_any_more() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let name = machine.driver.ensure_image(&registry.push("x", &thorough()).await, &quiet).await.unwrap();
        drop(registry);
        assert_eq!(
            machine.driver.ensure_image(&name, &quiet).await.unwrap(),
            name,
            "a digest that is there needs nobody"
        );
        let spec = machine.start_image(&name).await;
        fs::write(machine.seen(&spec, "etc/kept"), "changed").unwrap();
        machine.start(&InstanceSpec { boot: 2, ..spec.clone() }).await;
        assert_eq!(fs::read_to_string(machine.seen(&spec, "etc/kept")).unwrap(), "changed");
        let other = machine.start_image(&name).await;
        assert_eq!(fs::read_to_string(machine.seen(&other, "etc/kept")).unwrap(), "kept", "an image never changes");
        machine.driver.remove_instance(&spec.id).await.unwrap();
        machine.driver.remove_instance(&other.id).await.unwrap();
        assert_eq!(machine.layers().len(), 3, "an image outlives its instances");
    });
}

#[test]
fn an_image_of_nothing_but_one_file_starts() {
    on_a_machine(async |machine| {
        let registry = DockerRegistry::start().await;
        let only = Writing::new().file("program", 0o755, b"\x7fELF").pack(Packing::Gzip);
        let name = machine.driver.ensure_image(&registry.push("only", &image(&[only])).await, &quiet).await.unwrap();
        let spec = machine.start_image(&name).await;
        assert!(machine.seen(&spec, "program").exists() && !machine.seen(&spec, "usr/bin").exists());
        let stream = machine.driver.connect(&spec.id).await.unwrap();
        let asked = tarn_link::opening::open(stream, tarn_link::Purpose::Health);
        tokio::time::timeout(PATIENCE, asked).await.expect("the guest answers").unwrap();
    });
}
