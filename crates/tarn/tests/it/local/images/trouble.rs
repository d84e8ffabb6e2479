//! Pulls that go wrong in the middle, or that somebody slow keeps waiting.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tarn_driver::{Driver, Error, InstanceSpec};

use super::false_registry::FalseRegistry;
use super::maker::{Made, Packing, Writing, digest, image};
use super::quiet;
use crate::local::machine::{PATIENCE, names, on_a_machine, open};

/// As long as anything here may take before a test gives up.
const LONG: Duration = PATIENCE.saturating_mul(3);

/// Waits until something is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

/// An image of one layer, half of which comes.
fn held(registry: &FalseRegistry, name: &str, n: u8) -> (String, Made) {
    let made = image(&[Writing::new().file("a", 0o644, &vec![n; 6 << 20]).pack(Packing::Plain)]);
    let reference = registry.add(name, &made);
    hold(registry, name, &made.blobs[1]);
    (reference, made)
}

/// Only half of a blob comes.
fn hold(registry: &FalseRegistry, name: &str, blob: &[u8]) {
    registry.answer(&format!("/v2/{name}/blobs/{}", digest(blob)), blob, |answer| answer.is_held = true);
}

/// What is said of a pull, and who listens to it.
fn listener() -> (Arc<Mutex<String>>, impl Fn(String) + Send + Sync) {
    let said = Arc::new(Mutex::new(String::new()));
    let heard = said.clone();
    (said, move |words| *heard.lock().unwrap() = words)
}

/// The helpers of this process.
fn helpers() -> Vec<String> {
    let own = format!("PPid:\t{}\n", std::process::id());
    let is_helper = |process: &Path| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        status.contains(&own) && String::from_utf8_lossy(&line).contains("instance-helper")
    };
    names(Path::new("/proc")).into_iter().filter(|name| is_helper(&Path::new("/proc").join(name))).collect()
}

#[test]
fn a_helper_that_is_killed_in_the_middle_of_a_layer_leaves_nothing() {
    on_a_machine(async |machine| {
        let registry = FalseRegistry::start().await;
        let (reference, made) = held(&registry, "slow", 5);
        let (said, tell) = listener();
        let kill = async {
            until("half of it comes", || said.lock().unwrap().contains("3 of 6 MB")).await;
            let helpers = helpers();
            assert_eq!((machine.layers(), helpers.len()), (vec!["next-0".to_owned()], 1));
            assert!(Command::new("kill").args(["-9", &helpers[0]]).status().unwrap().success());
        };
        let (pulled, ()) = tokio::join!(machine.driver.ensure_image(&reference, &tell), kill);
        assert!(matches!(pulled, Err(Error::Retry(_))), "{pulled:?}");
        assert_eq!(machine.layers(), Vec::<String>::new(), "nothing is left of it");
        registry.add("slow", &made);
        assert!(machine.driver.ensure_image(&reference, &quiet).await.is_ok());
    });
}

#[test]
fn whoever_unpacks_ends_when_nobody_listens_any_more() {
    on_a_machine(async |_| {
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
        let mut half = Writing::new().file("a", 0o644, &vec![7; 1 << 20]).pack(Packing::Plain).bytes;
        half.truncate(1 << 19);
        input.write_all(&half).unwrap();
        until("it unpacks", || place.path().join("a").metadata().is_ok_and(|found| found.len() > 0)).await;
        assert!(helper.try_wait().unwrap().is_none(), "it waits for the other half");
        // More may come as far as it knows, but nobody will hear what becomes of it.
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
        in_time.expect("it ends with whoever listened");
    });
}

#[test]
fn a_registry_that_is_away_in_the_middle_of_a_layer_is_waited_for() {
    on_a_machine(async |machine| {
        let registry = FalseRegistry::start().await;
        let made = image(&[Writing::new().file("a", 0o644, &vec![5; 6 << 20]).pack(Packing::Plain)]);
        let reference = registry.add("late", &made);
        let blob = format!("/v2/late/blobs/{}", digest(&made.blobs[1]));
        // Whoever pulls comes in vain three times, for which it waits some seconds.
        registry.answer(&blob, &made.blobs[1], |answer| (answer.is_cut, answer.then_away) = (true, 3));
        registry.then(&blob, &made.blobs[1], |_| ());
        machine.driver.ensure_image(&reference, &quiet).await.unwrap();
        assert_eq!((registry.count("away"), registry.count(&blob)), (3, 2));
        assert!(registry.asked.lock().unwrap().contains(&format!("{blob} from {}", made.blobs[1].len() / 2)));
    });
}

#[test]
fn the_first_layer_that_fails_ends_the_others() {
    on_a_machine(async |machine| {
        let registry = FalseRegistry::start().await;
        let slow = Writing::new().file("a", 0o644, &vec![5; 6 << 20]).pack(Packing::Plain);
        let wrong = Writing::new().file("../a", 0o644, b"").pack(Packing::Plain);
        let made = image(&[slow, wrong]);
        let reference = registry.add("two", &made);
        hold(&registry, "two", &made.blobs[1]);
        let pulled = machine.driver.ensure_image(&reference, &quiet);
        let pulled = tokio::time::timeout(LONG, pulled).await.expect("nobody waits for what is in vain");
        let Err(Error::Permanent(why)) = pulled else { panic!("{pulled:?}") };
        assert!(why.contains("leads out of the image"), "{why}");
        assert_eq!(machine.layers(), Vec::<String>::new());
    });
}

#[test]
fn a_slow_registry_keeps_nobody_from_the_same_layer_and_whoever_waits_says_so() {
    on_a_machine(async |machine| {
        let (slow, other) = (FalseRegistry::start().await, FalseRegistry::start().await);
        let all: Vec<_> = (1..=3).map(|n| held(&slow, &format!("i{n}"), n)).collect();
        let last = other.add("last", &image(&[Writing::new().file("a", 0o644, b"a").pack(Packing::Plain)]));
        let same = other.add("same", &all[0].1);
        let is_asked = |n: usize| {
            slow.asked.lock().unwrap().contains(&format!("/v2/i{n}/blobs/{}", digest(&all[n - 1].1.blobs[1])))
        };
        let mut pulls: Vec<_> =
            all.iter().map(|(name, _)| Box::pin(machine.driver.ensure_image(name, &quiet))).collect();
        let [one, two, three] = pulls.get_disjoint_mut([0, 1, 2]).unwrap();
        tokio::select! {
            _ = one.as_mut() => panic!("it cannot end"),
            pulled = machine.driver.ensure_image(&same, &quiet) => drop(pulled.expect("it comes from elsewhere")),
            () = tokio::time::sleep(LONG) => panic!("one registry waits for another one"),
        }
        let (said, tell) = listener();
        let waits = async {
            until("all turns are taken", || [2, 3].into_iter().all(is_asked)).await;
            tokio::select! {
                pulled = machine.driver.ensure_image(&last, &tell) => panic!("it is not its turn: {pulled:?}"),
                () = until("it says that it waits", || said.lock().unwrap().contains("waits for its turn")) => {}
            }
        };
        tokio::select! {
            _ = one.as_mut() => panic!("it cannot end"),
            _ = two.as_mut() => panic!("it cannot end"),
            _ = three.as_mut() => panic!("it cannot end"),
            () = waits => {}
        }
        drop(pulls);
        let pulled = tokio::time::timeout(LONG, machine.driver.ensure_image(&last, &quiet)).await;
        pulled.expect("turns come back").unwrap();
    });
}

#[test]
fn an_instance_can_be_removed_while_its_image_comes_and_gets_back_what_was_lost() {
    on_a_machine(async |machine| {
        let registry = FalseRegistry::start().await;
        let (reference, made) = held(&registry, "slow", 5);
        let name = format!("{}@{}", reference.trim_end_matches(":1"), digest(&made.manifest));
        let spec = InstanceSpec { container: Some(name), ..machine.spec() };
        tokio::select! {
            started = machine.driver.ensure_instance(&spec) => panic!("it cannot start: {started:?}"),
            () = async {
                until("its image comes", || machine.layers() == ["next-0"]).await;
                let removed = tokio::time::timeout(LONG, machine.driver.remove_instance(&spec.id)).await;
                removed.expect("nobody has to wait for the image").unwrap();
            } => {}
        }
        until("the pull has ended", || machine.layers().is_empty()).await;
        registry.add("slow", &made);
        machine.start(&spec).await;
        fs::write(machine.seen(&spec, "kept"), "kept").unwrap();
        // Another engine comes to the same data, and a layer is not there any more.
        let elsewhere = tempfile::tempdir().unwrap();
        machine.driver = open(elsewhere.path()).await.unwrap();
        let layer = machine.layers().remove(0);
        fs::remove_dir_all(machine.data.path().join("images/containers/layers").join(&layer)).unwrap();
        machine.driver = open(machine.data.path()).await.unwrap();
        machine.start(&InstanceSpec { boot: 2, ..spec.clone() }).await;
        assert_eq!(machine.layers(), [layer]);
        assert_eq!(fs::metadata(machine.seen(&spec, "a")).unwrap().len(), 6 << 20);
        assert_eq!(fs::read_to_string(machine.seen(&spec, "kept")).unwrap(), "kept");
    });
}

#[test]
fn the_last_part_of_the_disk_is_not_for_images() {
    struct Mounted(std::path::PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            unmount(&self.0, UnmountFlags::DETACH).unwrap();
        }
    }
    on_a_machine(async |_| {
        let registry = FalseRegistry::start().await;
        let of = |n: u8, size: usize| image(&[Writing::new().file("a", 0o644, &vec![n; size]).pack(Packing::Zstd)]);
        let data = tempfile::tempdir().unwrap();
        let place = data.path().join("images/containers");
        fs::create_dir_all(&place).unwrap();
        mount("test", &place, "tmpfs", MountFlags::empty(), c"size=40m").unwrap();
        let _mounted = Mounted(place.clone());
        let driver = open(data.path()).await.unwrap();
        let small = registry.add("small", &of(1, 20 << 20));
        driver.ensure_image(&small, &quiet).await.unwrap();
        // Whoever unpacks may be faster than the engine looks: then the disk itself ends it.
        let refused = driver.ensure_image(&registry.add("bomb", &of(0, 64 << 20)), &quiet).await;
        let Err(Error::Retry(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("the disk of the "), "{why}");
        driver.ensure_image(&small, &quiet).await.unwrap();
        // Somebody else has taken almost all that is left: what nobody needs makes room, as it does in the cache.
        fs::write(place.join("other"), vec![7; 19 << 20]).unwrap();
        driver.ensure_image(&registry.add("late", &of(2, 1 << 19)), &quiet).await.unwrap();
        let late = digest(&of(2, 1 << 19).blobs[1]).replace("sha256:", "");
        assert_eq!(names(&place.join("layers")), [late]);
        drop(driver);
    });
}
