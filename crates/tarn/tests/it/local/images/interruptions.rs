//! Pulls that fail in the middle, or that wait for a slow registry.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tarn_driver::{Driver, Error, InstanceSpec};

use super::faulty_registry::FaultyRegistry;
use super::ignore_progress;
use super::image_builder::{Compression, LayerBuilder, TestImage, digest, image};
use crate::local::test_host::{TIMEOUT, entry_names, open, with_test_host};

/// How long anything here may take before a test gives up.
const LONG: Duration = TIMEOUT.saturating_mul(3);

/// Waits until a condition holds.
async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

/// Adds an image of one layer, of which only half is sent.
fn add_held(registry: &FaultyRegistry, name: &str, n: u8) -> (String, TestImage) {
    let made = image(&[LayerBuilder::new().file("a", 0o644, &vec![n; 6 << 20]).pack(Compression::Plain)]);
    let reference = registry.add(name, &made);
    hold_blob(registry, name, &made.blobs[1]);
    (reference, made)
}

/// Sends only half of a blob.
fn hold_blob(registry: &FaultyRegistry, name: &str, blob: &[u8]) {
    registry.respond(&format!("/v2/{name}/blobs/{}", digest(blob)), blob, |response| response.is_held = true);
}

/// Records the latest progress of a pull.
fn progress_recorder() -> (Arc<Mutex<String>>, impl Fn(String) + Send + Sync) {
    let progress = Arc::new(Mutex::new(String::new()));
    let recorded = progress.clone();
    (progress, move |message| *recorded.lock().unwrap() = message)
}

/// The helpers of this process.
fn running_helpers() -> Vec<String> {
    let own = format!("PPid:\t{}\n", std::process::id());
    let is_helper = |process: &Path| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        status.contains(&own) && String::from_utf8_lossy(&line).contains("instance-helper")
    };
    entry_names(Path::new("/proc")).into_iter().filter(|name| is_helper(&Path::new("/proc").join(name))).collect()
}

/// A helper that is killed while it unpacks a layer leaves nothing behind.
#[test]
fn killed_helper_leaves_no_layer() {
    with_test_host(async |host| {
        let registry = FaultyRegistry::start().await;
        let (reference, made) = add_held(&registry, "slow", 5);
        let (progress, record) = progress_recorder();
        let kill = async {
            wait_until("half of it comes", || progress.lock().unwrap().contains("3 of 6 MB")).await;
            let helpers = running_helpers();
            assert_eq!((host.layers(), helpers.len()), (vec!["next-0".to_owned()], 1));
            assert!(Command::new("kill").args(["-9", &helpers[0]]).status().unwrap().success());
        };
        let (pulled, ()) = tokio::join!(host.driver.ensure_image(&reference, "share", &record), kill);
        assert!(matches!(pulled, Err(Error::Retry(_))), "{pulled:?}");
        assert_eq!(host.layers(), Vec::<String>::new(), "nothing is left of it");
        registry.add("slow", &made);
        assert!(host.driver.ensure_image(&reference, "share", &ignore_progress).await.is_ok());
    });
}

/// A helper that unpacks ends when the engine stops reading its reports.
#[test]
fn helper_ends_when_engine_stops_reading() {
    with_test_host(async |_| {
        let place = tempfile::tempdir().unwrap();
        let order = serde_json::json!({ "unpack": {
            "directory": place.path(), "id_base": 0x5000_0000, "most_bytes": 1 << 30, "most_entries": 10,
        }});
        let mut helper = Command::new(env!("CARGO_BIN_EXE_tarn"));
        let mut helper = helper
            .arg("instance-helper")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = helper.stdin.take().unwrap();
        writeln!(input, "{order}").unwrap();
        let mut half = LayerBuilder::new().file("a", 0o644, &vec![7; 1 << 20]).pack(Compression::Plain).bytes;
        half.truncate(1 << 19);
        input.write_all(&half).unwrap();
        wait_until("it unpacks", || place.path().join("a").metadata().is_ok_and(|found| found.len() > 0)).await;
        assert!(helper.try_wait().unwrap().is_none(), "it waits for the other half");
        // More input may follow as far as it knows, but its reports are no longer read.
        drop(helper.stdout.take());
        let mut ended = None;
        let wait = async {
            while ended.is_none() {
                ended = helper.try_wait().unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(LONG, wait).await;
        drop(input);
        in_time.expect("it ends when its reports are no longer read");
    });
}

/// A pull waits for a registry that disappears in the middle of a layer.
#[test]
fn pull_waits_for_registry_that_disappears() {
    with_test_host(async |host| {
        let registry = FaultyRegistry::start().await;
        let made = image(&[LayerBuilder::new().file("a", 0o644, &vec![5; 6 << 20]).pack(Compression::Plain)]);
        let reference = registry.add("late", &made);
        let blob = format!("/v2/late/blobs/{}", digest(&made.blobs[1]));
        // The pull fails to connect three times, for which it waits some seconds.
        registry.respond(&blob, &made.blobs[1], |response| (response.is_cut, response.then_away) = (true, 3));
        registry.respond_next(&blob, &made.blobs[1], |_| ());
        host.driver.ensure_image(&reference, "share", &ignore_progress).await.unwrap();
        assert_eq!((registry.count("away"), registry.count(&blob)), (3, 2));
        assert!(registry.requests.lock().unwrap().contains(&format!("{blob} from {}", made.blobs[1].len() / 2)));
    });
}

/// The first layer that fails cancels the others.
#[test]
fn first_failed_layer_cancels_others() {
    with_test_host(async |host| {
        let registry = FaultyRegistry::start().await;
        let slow = LayerBuilder::new().file("a", 0o644, &vec![5; 6 << 20]).pack(Compression::Plain);
        let wrong = LayerBuilder::new().file("../a", 0o644, b"").pack(Compression::Plain);
        let made = image(&[slow, wrong]);
        let reference = registry.add("two", &made);
        hold_blob(&registry, "two", &made.blobs[1]);
        let pulled = host.driver.ensure_image(&reference, "share", &ignore_progress);
        let pulled = tokio::time::timeout(LONG, pulled).await.expect("the failure is reported at once");
        let Err(Error::Permanent(why)) = pulled else { panic!("{pulled:?}") };
        assert!(why.contains("leads out of the image"), "{why}");
        assert_eq!(host.layers(), Vec::<String>::new());
    });
}

/// A slow registry does not block the same layer from another one.
#[test]
fn slow_registry_blocks_no_other_registry() {
    with_test_host(async |host| {
        let (slow, other) = (FaultyRegistry::start().await, FaultyRegistry::start().await);
        let (held, made) = add_held(&slow, "held", 1);
        let same = other.add("same", &made);
        tokio::select! {
            _ = host.driver.ensure_image(&held, "share", &ignore_progress) => panic!("it cannot end"),
            pulled = host.driver.ensure_image(&same, "share", &ignore_progress) => {
                pulled.expect("it comes from elsewhere");
            }
            () = tokio::time::sleep(LONG) => panic!("one registry waits for another one"),
        }
    });
}

/// An instance can be removed while its image is pulled, and a lost layer is pulled again.
#[test]
fn instance_is_removable_during_pull_and_regains_lost_layer() {
    with_test_host(async |host| {
        let registry = FaultyRegistry::start().await;
        let (reference, made) = add_held(&registry, "slow", 5);
        let name = format!("{}@{}", reference.trim_end_matches(":1"), digest(&made.manifest));
        let spec = InstanceSpec { container: Some(name), ..host.spec() };
        tokio::select! {
            started = host.driver.ensure_instance(&spec) => panic!("it cannot start: {started:?}"),
            () = async {
                wait_until("its image comes", || host.layers() == ["next-0"]).await;
                let removed = tokio::time::timeout(LONG, host.driver.remove_instance(&spec.id)).await;
                removed.expect("the removal does not wait for the image").unwrap();
            } => {}
        }
        wait_until("the pull has ended", || host.layers().is_empty()).await;
        registry.add("slow", &made);
        host.start(&spec).await;
        fs::write(host.path_inside(&spec, "kept"), "kept").unwrap();
        // Another engine opens the same data, and a layer is missing.
        let elsewhere = tempfile::tempdir().unwrap();
        host.driver = open(elsewhere.path()).await.unwrap();
        let layer = host.layers().remove(0);
        fs::remove_dir_all(host.data.path().join("images/containers/layers").join(&layer)).unwrap();
        host.driver = open(host.data.path()).await.unwrap();
        host.start(&InstanceSpec { boot: 2, ..spec.clone() }).await;
        assert_eq!(host.layers(), [layer]);
        assert_eq!(fs::metadata(host.path_inside(&spec, "a")).unwrap().len(), 6 << 20);
        assert_eq!(fs::read_to_string(host.path_inside(&spec, "kept")).unwrap(), "kept");
    });
}

/// The last part of the disk is not used for images.
#[test]
fn last_part_of_disk_is_reserved() {
    struct Mounted(std::path::PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            unmount(&self.0, UnmountFlags::DETACH).unwrap();
        }
    }
    with_test_host(async |_| {
        let registry = FaultyRegistry::start().await;
        let of =
            |n: u8, size: usize| image(&[LayerBuilder::new().file("a", 0o644, &vec![n; size]).pack(Compression::Zstd)]);
        let data = tempfile::tempdir().unwrap();
        let place = data.path().join("images/containers");
        fs::create_dir_all(&place).unwrap();
        mount("test", &place, "tmpfs", MountFlags::empty(), c"size=40m").unwrap();
        let _mounted = Mounted(place.clone());
        let driver = open(data.path()).await.unwrap();
        let small = registry.add("small", &of(1, 20 << 20));
        driver.ensure_image(&small, "share", &ignore_progress).await.unwrap();
        // The helper may unpack faster than the engine checks; then the disk itself ends it.
        let refused = driver.ensure_image(&registry.add("bomb", &of(0, 64 << 20)), "share", &ignore_progress).await;
        let Err(Error::Retry(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("disk") && why.contains("full"), "{why}");
        driver.ensure_image(&small, "share", &ignore_progress).await.unwrap();
        // Other files take almost all of the remaining space: unused layers are evicted, as in a full cache.
        fs::write(place.join("other"), vec![7; 19 << 20]).unwrap();
        driver.ensure_image(&registry.add("late", &of(2, 1 << 19)), "share", &ignore_progress).await.unwrap();
        let late = digest(&of(2, 1 << 19).blobs[1]).replace("sha256:", "");
        assert_eq!(entry_names(&place.join("layers")), [late]);
        drop(driver);
    });
}
