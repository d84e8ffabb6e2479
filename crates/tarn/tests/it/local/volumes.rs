//! Volumes on this machine: made once, found again, grown, refused when damaged, and kept from everything that is not theirs.

mod disks;
mod faults;
mod looks;
mod pools;

use std::fs;
use std::os::unix::fs::MetadataExt;

use tarn_driver::{Driver, Error, InstanceSpec, VolumeSpec};

use crate::local::machine::{Machine, names, open};
use disks::Mounted;
use looks::{Superblock, with_volumes};

const GIB: u64 = 1 << 30;

#[test]
fn a_volume_is_formatted_once_and_its_files_stay() {
    with_volumes(async |machine| {
        let spec = machine.volume(GIB);
        let made = machine.driver.ensure_volume(&spec).await.unwrap();
        assert_eq!((made.size_bytes, made.fault.as_deref()), (GIB, None));
        assert!(made.used_bytes.is_some_and(|used| used < GIB / 100), "it is almost empty: {made:?}");
        let first = Superblock::of(&machine.file(&spec));
        assert_eq!(spec.id.as_str(), format!("s-{}", first.label), "its label carries its id");
        {
            let mut mounted = Mounted::at(&machine.file(&spec), machine.data.path());
            assert_eq!(mounted.run("stat -c %u:%g:%a ."), "1000:1000:755\n", "it belongs to the user of the instances");
            mounted.run("echo kept > file && sync -f file");
            assert_eq!(machine.driver.ensure_volume(&spec).await.unwrap().size_bytes, GIB, "also while it is in use");
        }
        reopen(machine).await;
        machine.driver.ensure_volume(&spec).await.unwrap();
        assert_eq!(Superblock::of(&machine.file(&spec)).uuid, first.uuid);
        let mut mounted = Mounted::at(&machine.file(&spec), machine.data.path());
        assert_eq!(mounted.run("cat file"), "kept\n");
    });
}

#[test]
fn nothing_of_a_volume_shows_on_the_machine() {
    with_volumes(async |machine| {
        let spec = machine.volume(GIB);
        machine.driver.ensure_volume(&spec).await.unwrap();
        machine.driver.ensure_volume(&VolumeSpec { size_bytes: 2 * GIB, ..spec.clone() }).await.unwrap();
        let instance = InstanceSpec { volumes: vec![spec.id.clone()], ..machine.spec() };
        machine.start(&instance).await;
        assert_eq!(machine.driver.observe().await.unwrap().volumes.len(), 1);
        let device = machine.device().await;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let data = machine.data.path().display().to_string();
        let shown = |line: &&str| line.contains(&data) || line.split(' ').nth(2) == Some(device.as_str());
        assert_eq!(mounts.lines().find(shown), None);
        machine.driver.remove_instance(&instance.id).await.unwrap();
        machine.no_loops().await;
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&machine.pool()), mode(&machine.file(&spec))), (0o700, 0o600), "nor to others on it");
        assert!(fs::metadata(machine.file(&spec)).unwrap().blocks() * 512 < GIB / 4, "and it takes little room");
    });
}

#[test]
fn a_volume_grows_at_rest_and_in_use() {
    with_volumes(async |machine| {
        let spec = machine.volume(GIB);
        machine.driver.ensure_volume(&spec).await.unwrap();
        let grown = VolumeSpec { size_bytes: 2 * GIB - 1, ..spec.clone() };
        assert_eq!(machine.driver.ensure_volume(&grown).await.unwrap().size_bytes, 2 * GIB, "whole blocks");
        assert_eq!(Superblock::of(&machine.file(&spec)).size_bytes, 2 * GIB);
        {
            let mut mounted = Mounted::at(&machine.file(&spec), machine.data.path());
            let grown = VolumeSpec { size_bytes: 4 * GIB, ..spec.clone() };
            assert_eq!(machine.driver.ensure_volume(&grown).await.unwrap().size_bytes, 4 * GIB);
            let total: u64 =
                mounted.run("stat -f -c '%b %S' . | { read b s; echo $((b * s)); }").trim().parse().unwrap();
            assert!(total > 39 * GIB / 10, "whoever has it mounted sees it at once: {total}");
        }
        machine.no_loops().await;
        let kept = machine.driver.ensure_volume(&spec).await.unwrap();
        assert_eq!(kept.size_bytes, 4 * GIB, "it never shrinks");
        let huge = VolumeSpec { size_bytes: u64::MAX, ..spec.clone() };
        assert!(matches!(machine.driver.ensure_volume(&huge).await, Err(Error::Permanent(_))));
        assert_eq!(
            machine.driver.observe_volume(&spec.id).await.unwrap(),
            Some(kept),
            "what was refused changed nothing"
        );
    });
}

#[test]
fn what_an_engine_that_died_left_is_finished_or_swept_away() {
    with_volumes(async |machine| {
        let (spec, half) = (machine.volume(GIB), machine.volume(GIB));
        machine.driver.ensure_volume(&spec).await.unwrap();
        // It died after the file had its new size, and before the filesystem had.
        fs::File::options().write(true).open(machine.file(&spec)).unwrap().set_len(3 * GIB).unwrap();
        let seen = machine.driver.observe_volume(&spec.id).await.unwrap().unwrap();
        assert_eq!((seen.size_bytes, seen.fault), (GIB, None), "a longer file alone is no larger volume");
        let leftovers = [format!("{}.new", half.id), format!("{}.removed", half.id)];
        for name in &leftovers {
            fs::create_dir(machine.pool().join(name)).unwrap();
            fs::write(machine.pool().join(name).join("data.xfs"), "half").unwrap();
        }
        let foreign = ["notes.new", "lost+found", "s-short"];
        foreign.iter().for_each(|name| fs::create_dir(machine.pool().join(name)).unwrap());
        machine.driver.ensure_volume(&half).await.unwrap();
        assert!(!machine.pool().join(&leftovers[0]).exists(), "a new beginning replaces half of one");
        fs::create_dir(machine.pool().join(&leftovers[0])).unwrap();
        reopen(machine).await;
        let mut wanted = vec!["installation", spec.id.as_str(), half.id.as_str()];
        wanted.extend(foreign);
        wanted.sort_unstable();
        assert_eq!(names(&machine.pool()), wanted, "nothing else is ever removed");
        foreign.iter().for_each(|name| fs::remove_dir(machine.pool().join(name)).unwrap());
        assert_eq!(machine.driver.ensure_volume(&spec).await.unwrap().size_bytes, 3 * GIB);
        assert_eq!(Superblock::of(&machine.file(&spec)).size_bytes, 3 * GIB);
    });
}

#[test]
fn many_at_once_make_one_volume_and_one_device() {
    with_volumes(async |machine| {
        let spec = machine.volume(GIB);
        let grown = VolumeSpec { size_bytes: 2 * GIB, ..spec.clone() };
        let calls = [&spec, &grown, &spec, &grown].map(|spec| machine.driver.ensure_volume(spec));
        for made in futures::future::join_all(calls).await {
            made.unwrap();
        }
        assert_eq!(names(&machine.pool()), ["installation", spec.id.as_str()]);
        assert_eq!(Superblock::of(&machine.file(&spec)).size_bytes, 2 * GIB);
        let instances = [machine.spec(), machine.spec(), machine.spec()];
        let starts = instances.map(|instance| InstanceSpec { volumes: vec![spec.id.clone()], ..instance });
        for started in futures::future::join_all(starts.iter().map(|start| machine.start(start))).await {
            assert_eq!(started.volumes, std::slice::from_ref(&spec.id));
        }
        // All of them share one filesystem.
        machine.device().await;
    });
}

#[test]
fn a_volume_that_is_open_is_not_removed() {
    with_volumes(async |machine| {
        let spec = machine.volume(GIB);
        machine.driver.ensure_volume(&spec).await.unwrap();
        let mut mounted = Mounted::at(&machine.file(&spec), machine.data.path());
        mounted.run("echo kept > file");
        let refused = machine.driver.remove_volume(&spec.id).await;
        assert!(matches!(&refused, Err(Error::Permanent(why)) if why.contains(spec.id.as_str())), "{refused:?}");
        assert_eq!(mounted.run("cat file"), "kept\n");
        drop(mounted);
        machine.driver.remove_volume(&spec.id).await.unwrap();
        assert_eq!(machine.driver.observe_volume(&spec.id).await.unwrap(), None);
        assert_eq!(names(&machine.pool()), ["installation"]);
    });
}

/// As after a restart of the engine.
async fn reopen(machine: &mut Machine) {
    let elsewhere = tempfile::tempdir().unwrap();
    machine.driver = open(elsewhere.path()).await.unwrap();
    machine.driver = open(machine.data.path()).await.unwrap();
}
