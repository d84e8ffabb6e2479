//! Container images on a real host: pulled from a real registry and from a faulty one, and inspected as their instances
//! see them. The tests build their images themselves.

mod cache;
mod devices;
mod faulty_registry;
mod hostile;
mod image_builder;
mod interruptions;
mod mirrors;
mod private_hosts;
mod refusals;
mod registry;
mod shapes;
mod tokens;
mod turns;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use tarn_driver::{Driver, InstanceSpec};

use crate::local::test_host::{TIMEOUT, TestHost, with_test_host};
use image_builder::{Compression, LayerBuilder, image};
use registry::DockerRegistry;

/// Ignores the progress of a pull.
pub(crate) fn ignore_progress(_: String) {}

impl TestHost {
    /// Starts an instance of an image that was pulled.
    async fn start_image(&self, name: &str) -> InstanceSpec {
        let spec = InstanceSpec { container: Some(name.to_owned()), ..self.spec() };
        self.start(&spec).await;
        spec
    }

    /// A path in a running instance, reached from the host.
    fn path_inside(&self, spec: &InstanceSpec, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.init(&spec.id))).join(path)
    }

    /// The image configuration that the guest of an instance was given. The guest replaces the first process a moment
    /// after the start.
    async fn guest_image(&self, spec: &InstanceSpec) -> tarn_link::Image {
        let path = format!("/proc/{}/environ", self.init(&spec.id));
        let image_config = async {
            loop {
                let environment = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                if let Some(image_config) = environment.split('\0').find_map(|pair| pair.strip_prefix("TARN_IMAGE=")) {
                    return serde_json::from_str(image_config).unwrap();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, image_config).await.expect("the guest gets its image")
    }

    /// The layers in the cache.
    fn layers(&self) -> Vec<String> {
        crate::local::test_host::entry_names(&self.data.path().join("images/containers/layers"))
    }
}

/// An image that uses every legitimate feature, in every compression.
fn image_with_every_feature() -> image_builder::TestImage {
    let lowest = LayerBuilder::new()
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
    let middle = LayerBuilder::new()
        .file("etc/.wh.removed", 0o644, b"")
        .directory("emptied/", 0o755)
        .file("emptied/.wh..wh..opq", 0o644, b"")
        .file("emptied/new", 0o644, b"new")
        .file(".wh.replaced", 0o644, b"")
        .directory("replaced/", 0o700)
        .file("replaced/new", 0o644, b"new")
        .file(".wh.gone", 0o644, b"");
    let long = format!("deep/{}", "name/".repeat(40));
    let highest = LayerBuilder::new()
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
    image(&[lowest.pack(Compression::Plain), middle.pack(Compression::Gzip), highest.pack(Compression::Zstd)])
}

/// An instance sees its image as it was built.
#[test]
fn instance_sees_image_as_built() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let reference = registry.push("a/thorough", &image_with_every_feature()).await;
        let name = host.driver.ensure_image(&reference, "share", &ignore_progress).await.unwrap();
        let digest = image_builder::digest(&image_with_every_feature().manifest);
        assert_eq!(name, format!("{}/a/thorough@{digest}", registry.address));
        let spec = host.start_image(&name).await;
        let read = |path: &str| fs::read_to_string(host.path_inside(&spec, path)).ok();
        assert_eq!(read("etc/kept").as_deref(), Some("kept"));
        for (gone, there) in [
            ("etc/removed", "etc"),
            ("emptied/old", "emptied/new"),
            ("replaced/old", "replaced/new"),
            ("gone", "sticky"),
        ] {
            assert!(!host.path_inside(&spec, gone).exists(), "{gone} is hidden");
            assert!(host.path_inside(&spec, there).exists(), "{there} is there");
        }
        assert_eq!(read("usr/lib/through").as_deref(), Some("through a link"));
        assert_eq!(read(&format!("deep/{}file", "name/".repeat(40))).as_deref(), Some("long"));
        let found = |path: &str| fs::symlink_metadata(host.path_inside(&spec, path)).unwrap();
        let base = found("").uid();
        assert!(base >= 0x4000_0000, "files belong to the instance: {base}");
        let one = found("bin/one");
        assert_eq!((one.mode() & 0o7777, one.nlink(), one.uid() - base, one.mtime()), (0o4755, 3, 0, 1_000_000_000));
        assert_eq!(found("bin/three").ino(), one.ino());
        assert_eq!((found("closed").mode() & 0o7777, found("sticky").mode() & 0o7777), (0o000, 0o1777));
        assert_eq!(found("replaced").mode() & 0o7777, 0o700);
        assert!(found("pipe").file_type().is_fifo());
        assert!(!host.path_inside(&spec, "null").exists(), "device files are left out");
        let attached = |name: &str| {
            let mut value = [0; 16];
            rustix::fs::getxattr(host.path_inside(&spec, "attached"), name, &mut value)
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
            assert!(host.path_inside(&spec, path).exists(), "{path}");
        }
        assert_eq!(read("etc/hostname").as_deref(), Some("node-0\n"));
        let image_config = host.guest_image(&spec).await;
        assert_eq!(image_config.environment, [("GREETING".to_owned(), "hello world".to_owned())]);
        assert_eq!(
            (image_config.user.as_deref(), image_config.directory.as_deref()),
            (Some("1000:1000"), Some("/srv"))
        );
    });
}

/// The disk survives a restart, and the registry is no longer needed.
#[test]
fn disk_survives_restart_without_registry() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let name = host
            .driver
            .ensure_image(&registry.push("x", &image_with_every_feature()).await, "share", &ignore_progress)
            .await
            .unwrap();
        drop(registry);
        assert_eq!(
            host.driver.ensure_image(&name, "share", &ignore_progress).await.unwrap(),
            name,
            "a cached digest needs no registry"
        );
        let spec = host.start_image(&name).await;
        fs::write(host.path_inside(&spec, "etc/kept"), "changed").unwrap();
        host.start(&InstanceSpec { boot: 2, ..spec.clone() }).await;
        assert_eq!(fs::read_to_string(host.path_inside(&spec, "etc/kept")).unwrap(), "changed");
        let other = host.start_image(&name).await;
        assert_eq!(fs::read_to_string(host.path_inside(&other, "etc/kept")).unwrap(), "kept", "an image never changes");
        host.driver.remove_instance(&spec.id).await.unwrap();
        host.driver.remove_instance(&other.id).await.unwrap();
        assert_eq!(host.layers().len(), 3, "an image outlives its instances");
    });
}

/// An image of a single file starts.
#[test]
fn image_of_one_file_starts() {
    with_test_host(async |host| {
        let registry = DockerRegistry::start().await;
        let only = LayerBuilder::new().file("program", 0o755, b"\x7fELF").pack(Compression::Gzip);
        let name = host
            .driver
            .ensure_image(&registry.push("only", &image(&[only])).await, "share", &ignore_progress)
            .await
            .unwrap();
        let spec = host.start_image(&name).await;
        assert!(host.path_inside(&spec, "program").exists() && !host.path_inside(&spec, "usr/bin").exists());
        let stream = host.driver.connect(&spec.id).await.unwrap();
        let asked = tarn_link::opening::open(stream, tarn_link::Purpose::Health);
        tokio::time::timeout(TIMEOUT, asked).await.expect("the guest answers").unwrap();
    });
}
