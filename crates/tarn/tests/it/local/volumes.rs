//! Volumes on this host: created once, found again, grown, refused when damaged, and isolated from everything else.

mod faults;
mod inspection;
mod pools;
mod test_disks;

use std::fs;
use std::os::unix::fs::MetadataExt;

use tarn_driver::{Driver, Error, InstanceSpec, VolumeSpec};

use crate::local::test_host::{TestHost, entry_names, open};
use inspection::{Superblock, with_volumes};
use test_disks::TestMount;

const GIB: u64 = 1 << 30;

/// A volume is formatted once, and its files stay.
#[test]
fn volume_is_formatted_once() {
    with_volumes(async |host| {
        let spec = host.volume(GIB);
        let made = host.driver.ensure_volume(&spec).await.unwrap();
        assert_eq!((made.size_bytes, made.fault.as_deref()), (GIB, None));
        assert!(made.used_bytes.is_some_and(|used| used < GIB / 100), "it is almost empty: {made:?}");
        let first = Superblock::of(&host.file(&spec));
        assert_eq!(spec.id.as_str(), format!("s-{}", first.label), "its label carries its id");
        {
            let mut mounted = TestMount::at(&host.file(&spec), host.data.path());
            assert_eq!(mounted.run("stat -c %u:%g:%a ."), "1000:1000:755\n", "it belongs to the user of the instances");
            mounted.run("echo kept > file && sync -f file");
            assert_eq!(host.driver.ensure_volume(&spec).await.unwrap().size_bytes, GIB, "also while it is in use");
        }
        reopen(host).await;
        host.driver.ensure_volume(&spec).await.unwrap();
        assert_eq!(Superblock::of(&host.file(&spec)).uuid, first.uuid);
        let mut mounted = TestMount::at(&host.file(&spec), host.data.path());
        assert_eq!(mounted.run("cat file"), "kept\n");
    });
}

/// Nothing of a volume is visible on the host.
#[test]
fn volume_is_invisible_on_host() {
    with_volumes(async |host| {
        let spec = host.volume(GIB);
        host.driver.ensure_volume(&spec).await.unwrap();
        host.driver.ensure_volume(&VolumeSpec { size_bytes: 2 * GIB, ..spec.clone() }).await.unwrap();
        let instance = InstanceSpec { volumes: vec![spec.id.clone()], ..host.spec() };
        host.start(&instance).await;
        assert_eq!(host.driver.observe().await.unwrap().volumes.len(), 1);
        let device = host.device().await;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let data = host.data.path().display().to_string();
        let shown = |line: &&str| line.contains(&data) || line.split(' ').nth(2) == Some(device.as_str());
        assert_eq!(mounts.lines().find(shown), None);
        host.driver.remove_instance(&instance.id).await.unwrap();
        host.wait_until_detached().await;
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&host.pool()), mode(&host.file(&spec))), (0o700, 0o600), "nor to others on it");
        assert!(fs::metadata(host.file(&spec)).unwrap().blocks() * 512 < GIB / 4, "and it takes little room");
    });
}

/// A volume grows at rest and in use.
#[test]
fn volume_grows_at_rest_and_in_use() {
    with_volumes(async |host| {
        let spec = host.volume(GIB);
        host.driver.ensure_volume(&spec).await.unwrap();
        let grown = VolumeSpec { size_bytes: 2 * GIB - 1, ..spec.clone() };
        assert_eq!(host.driver.ensure_volume(&grown).await.unwrap().size_bytes, 2 * GIB, "whole blocks");
        assert_eq!(Superblock::of(&host.file(&spec)).size_bytes, 2 * GIB);
        {
            let mut mounted = TestMount::at(&host.file(&spec), host.data.path());
            let grown = VolumeSpec { size_bytes: 4 * GIB, ..spec.clone() };
            assert_eq!(host.driver.ensure_volume(&grown).await.unwrap().size_bytes, 4 * GIB);
            let total: u64 =
                mounted.run("stat -f -c '%b %S' . | { read b s; echo $((b * s)); }").trim().parse().unwrap();
            assert!(total > 39 * GIB / 10, "the mount shows it at once: {total}");
        }
        host.wait_until_detached().await;
        let kept = host.driver.ensure_volume(&spec).await.unwrap();
        assert_eq!(kept.size_bytes, 4 * GIB, "it never shrinks");
        let huge = VolumeSpec { size_bytes: u64::MAX, ..spec.clone() };
        assert!(matches!(host.driver.ensure_volume(&huge).await, Err(Error::Permanent(_))));
        assert_eq!(host.driver.observe_volume(&spec.id).await.unwrap(), Some(kept), "what was refused changed nothing");
    });
}

/// What an engine that died left is finished or swept.
#[test]
fn leftovers_of_dead_engine_are_finished_or_swept() {
    with_volumes(async |host| {
        let (spec, half) = (host.volume(GIB), host.volume(GIB));
        host.driver.ensure_volume(&spec).await.unwrap();
        // The engine died after the file had its new size, and before the filesystem had.
        fs::File::options().write(true).open(host.file(&spec)).unwrap().set_len(3 * GIB).unwrap();
        let seen = host.driver.observe_volume(&spec.id).await.unwrap().unwrap();
        assert_eq!((seen.size_bytes, seen.fault), (GIB, None), "a longer file alone is no larger volume");
        let leftovers = [format!("{}.new", half.id), format!("{}.removed", half.id)];
        for name in &leftovers {
            fs::create_dir(host.pool().join(name)).unwrap();
            fs::write(host.pool().join(name).join("data.xfs"), "half").unwrap();
        }
        let foreign = ["notes.new", "lost+found", "s-short"];
        foreign.iter().for_each(|name| fs::create_dir(host.pool().join(name)).unwrap());
        host.driver.ensure_volume(&half).await.unwrap();
        assert!(!host.pool().join(&leftovers[0]).exists(), "a new beginning replaces half of one");
        fs::create_dir(host.pool().join(&leftovers[0])).unwrap();
        reopen(host).await;
        let mut wanted = vec!["installation", spec.id.as_str(), half.id.as_str()];
        wanted.extend(foreign);
        wanted.sort_unstable();
        assert_eq!(entry_names(&host.pool()), wanted, "nothing else is ever removed");
        foreign.iter().for_each(|name| fs::remove_dir(host.pool().join(name)).unwrap());
        assert_eq!(host.driver.ensure_volume(&spec).await.unwrap().size_bytes, 3 * GIB);
        assert_eq!(Superblock::of(&host.file(&spec)).size_bytes, 3 * GIB);
    });
}

/// Concurrent calls create one volume with one device.
#[test]
fn concurrent_calls_create_one_volume_and_device() {
    with_volumes(async |host| {
        let spec = host.volume(GIB);
        let grown = VolumeSpec { size_bytes: 2 * GIB, ..spec.clone() };
        let calls = [&spec, &grown, &spec, &grown].map(|spec| host.driver.ensure_volume(spec));
        for made in futures::future::join_all(calls).await {
            made.unwrap();
        }
        assert_eq!(entry_names(&host.pool()), ["installation", spec.id.as_str()]);
        assert_eq!(Superblock::of(&host.file(&spec)).size_bytes, 2 * GIB);
        let instances = [host.spec(), host.spec(), host.spec()];
        let starts = instances.map(|instance| InstanceSpec { volumes: vec![spec.id.clone()], ..instance });
        for started in futures::future::join_all(starts.iter().map(|start| host.start(start))).await {
            assert_eq!(started.volumes, std::slice::from_ref(&spec.id));
        }
        // All of them share one filesystem.
        host.device().await;
    });
}

/// A volume that is open is not removed.
#[test]
fn open_volume_is_not_removed() {
    with_volumes(async |host| {
        let spec = host.volume(GIB);
        host.driver.ensure_volume(&spec).await.unwrap();
        let mut mounted = TestMount::at(&host.file(&spec), host.data.path());
        mounted.run("echo kept > file");
        let refused = host.driver.remove_volume(&spec.id).await;
        assert!(matches!(&refused, Err(Error::Permanent(why)) if why.contains(spec.id.as_str())), "{refused:?}");
        assert_eq!(mounted.run("cat file"), "kept\n");
        drop(mounted);
        host.driver.remove_volume(&spec.id).await.unwrap();
        assert_eq!(host.driver.observe_volume(&spec.id).await.unwrap(), None);
        assert_eq!(entry_names(&host.pool()), ["installation"]);
    });
}

/// Opens the driver again, as after a restart of the engine.
async fn reopen(host: &mut TestHost) {
    let elsewhere = tempfile::tempdir().unwrap();
    host.driver = open(elsewhere.path()).await.unwrap();
    host.driver = open(host.data.path()).await.unwrap();
}
