//! What a GPU needs is put into an instance on a container image, whatever the image has in its way.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use tarn_driver::{Driver, InstanceSpec};

use super::maker::{Packing, Writing, image};
use super::quiet;
use super::registry::DockerRegistry;
use crate::local::gpus::{SPECIFICATION, describe, with_gpus};
use crate::local::machine::on_a_machine;

#[test]
fn a_gpu_is_used_on_top_of_an_image() {
    on_a_machine(async |machine| {
        describe(machine.data.path(), SPECIFICATION);
        let registry = DockerRegistry::start().await;
        // The image leads elsewhere with its links, as one may that wants to have something of the host changed.
        let layer = Writing::new()
            .file("program", 0o755, b"\x7fELF")
            .symlink("opt", "/srv/tarn-moved")
            .directory("srv/tarn-moved/", 0o755)
            .symlink("usr/share", "../../../../tarn-share")
            .directory("tarn-share/", 0o755);
        let pushed = registry.push("gpu", &image(&[layer.pack(Packing::Gzip)])).await;
        let name = machine.driver.ensure_image(&pushed, &quiet).await.unwrap();
        let spec = InstanceSpec { container: Some(name), ..with_gpus(machine, &["simulated-H100-0"]) };
        machine.start(&spec).await;

        let read = |path: &str| fs::read_to_string(machine.seen(&spec, path)).unwrap();
        assert_eq!(read("srv/tarn-moved/trial/lib/library.so.1"), "a library", "links lead within the image");
        assert_eq!(read("tarn-share/trial/one"), "1");
        for host in ["/srv/tarn-moved", "/tarn-share", "/opt/trial", "/usr/share/trial"] {
            assert!(!Path::new(host).exists(), "{host} is none of the host");
        }
        let link = fs::read_link(machine.seen(&spec, "srv/tarn-moved/trial/lib/library.so")).unwrap();
        assert_eq!(link, Path::new("library.so.1"));
        let device = fs::metadata(machine.seen(&spec, "dev/trial0")).unwrap();
        let numbers = (rustix::fs::major(device.rdev()), rustix::fs::minor(device.rdev()));
        assert!(device.file_type().is_char_device() && numbers == (1, 7), "{numbers:?}");
        let environment = read("run/tarn/environment");
        for line in ["TRIAL_ALL=yes and no", "TRIAL_ONE=1", "LD_LIBRARY_PATH=/opt/trial/lib"] {
            assert!(environment.lines().any(|found| found == line), "{line}: {environment}");
        }
        let mounts = fs::read_to_string(format!("/proc/{}/mounts", machine.init(&spec.id))).unwrap();
        for place in ["/srv/tarn-moved/trial/lib/library.so.1", "/tarn-share/trial", "/usr/bin/env"] {
            let is_here = |line: &&str| line.split(' ').nth(1) == Some(place);
            let line = mounts.lines().find(is_here).unwrap_or_else(|| panic!("{place}: {mounts}"));
            let options = line.split(' ').nth(3).unwrap();
            assert!(["ro", "nosuid", "nodev"].iter().all(|one| options.split(',').any(|has| has == *one)), "{line}");
        }
    });
}
