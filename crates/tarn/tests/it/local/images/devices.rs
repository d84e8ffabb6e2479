//! An instance on a container image gets what its GPU needs, whatever the image has in its place.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use tarn_driver::{Driver, InstanceSpec};

use super::ignore_progress;
use super::image_builder::{Compression, LayerBuilder, image};
use super::registry::DockerRegistry;
use crate::local::gpus::{SPECIFICATION, with_gpus, write_specification};
use crate::local::test_host::with_test_host;

/// An instance on a container image gets what its GPU needs.
#[test]
fn gpu_works_on_container_image() {
    with_test_host(async |host| {
        write_specification(host.data.path(), SPECIFICATION);
        let registry = DockerRegistry::start().await;
        // The links of the image lead elsewhere, as in an image that tries to change something on the host.
        let layer = LayerBuilder::new()
            .file("program", 0o755, b"\x7fELF")
            .symlink("opt", "/srv/tarn-moved")
            .directory("srv/tarn-moved/", 0o755)
            .symlink("usr/share", "../../../../tarn-share")
            .directory("tarn-share/", 0o755);
        let pushed = registry.push("gpu", &image(&[layer.pack(Compression::Gzip)])).await;
        let name = host.driver.ensure_image(&pushed, "share", &ignore_progress).await.unwrap();
        let spec = InstanceSpec { container: Some(name), ..with_gpus(host, &["simulated-H100-0"]) };
        host.start(&spec).await;

        let read = |path: &str| fs::read_to_string(host.path_inside(&spec, path)).unwrap();
        assert_eq!(read("srv/tarn-moved/trial/lib/library.so.1"), "a library", "links lead within the image");
        assert_eq!(read("tarn-share/trial/one"), "1");
        for path in ["/srv/tarn-moved", "/tarn-share", "/opt/trial", "/usr/share/trial"] {
            assert!(!Path::new(path).exists(), "{path} is created on the host");
        }
        let link = fs::read_link(host.path_inside(&spec, "srv/tarn-moved/trial/lib/library.so")).unwrap();
        assert_eq!(link, Path::new("library.so.1"));
        let device = fs::metadata(host.path_inside(&spec, "dev/trial0")).unwrap();
        let numbers = (rustix::fs::major(device.rdev()), rustix::fs::minor(device.rdev()));
        assert!(device.file_type().is_char_device() && numbers == (1, 7), "{numbers:?}");
        let environment = read("run/tarn/environment");
        for line in ["TRIAL_ALL=yes and no", "TRIAL_ONE=1", "LD_LIBRARY_PATH=/opt/trial/lib"] {
            assert!(environment.lines().any(|found| found == line), "{line}: {environment}");
        }
        let mounts = fs::read_to_string(format!("/proc/{}/mounts", host.init(&spec.id))).unwrap();
        for place in ["/srv/tarn-moved/trial/lib/library.so.1", "/tarn-share/trial", "/usr/bin/env"] {
            let is_here = |line: &&str| line.split(' ').nth(1) == Some(place);
            let line = mounts.lines().find(is_here).unwrap_or_else(|| panic!("{place}: {mounts}"));
            let options = line.split(' ').nth(3).unwrap();
            assert!(["ro", "nosuid", "nodev"].iter().all(|one| options.split(',').any(|has| has == *one)), "{line}");
        }
    });
}
