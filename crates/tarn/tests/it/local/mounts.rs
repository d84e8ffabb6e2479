//! Volumes in instances: shared, persistent, full, grown, mounted live, and never visible on the host.

mod hostile;
mod respawning_users;
mod slow_unmounts;
mod users;

use std::fs;
use std::time::Duration;

use tarn_driver::{Driver, End, Error, InstanceSpec, VolumeSpec};
use tarn_model::ids::{InstanceId, VolumeId};

use crate::local::test_host::{TIMEOUT, TestHost, attached_files, mounts, open, with_test_host};

/// About the smallest size of a volume.
const SMALL: u64 = 320 << 20;

/// Creates a small volume.
async fn create_volume(host: &TestHost) -> VolumeSpec {
    let spec = VolumeSpec { id: VolumeId::fresh(&host.ids), size_bytes: SMALL };
    host.driver.ensure_volume(&spec).await.unwrap();
    spec
}

/// The mount point of a volume in an instance.
fn mount_point(volume: &VolumeSpec) -> String {
    format!("/mnt/{}", volume.id)
}

/// Starts an instance with these volumes.
async fn start_with_volumes(host: &TestHost, volumes: &[&VolumeSpec]) -> InstanceSpec {
    let volumes = volumes.iter().map(|volume| volume.id.clone()).collect();
    let spec = InstanceSpec { volumes, ..host.spec() };
    host.start(&spec).await;
    spec
}

/// Waits until a command succeeds in an instance.
async fn wait_until_works(host: &TestHost, id: &InstanceId, command: &str) {
    let works = async { while host.attempt(id, command).await.0 != 0 {} };
    tokio::time::timeout(TIMEOUT, works).await.unwrap_or_else(|_| panic!("{command} works in the end"));
}

/// Asserts that nothing of a volume is mounted on the host.
fn assert_nothing_mounted(host: &TestHost) {
    for part in [host.driver.installation(), &host.data.path().display().to_string(), "/mnt/s-"] {
        assert_eq!(mounts(part), Vec::<String>::new(), "nothing is mounted on the host");
    }
}

/// A volume is shared by instances, and its files keep their owners.
#[test]
fn shared_volume_keeps_file_owners() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let at = mount_point(&volume);
        let [one, other] = [start_with_volumes(host, &[&volume]).await, start_with_volumes(host, &[&volume]).await];
        host.run(&one.id, &format!("echo mine > {at}/user; sudo sh -c 'echo theirs > {at}/root'")).await;
        let seen = host.run(&other.id, &format!("cd {at} && cat user root && stat -c %U:%G . user root")).await;
        assert_eq!(seen, "mine\ntheirs\nubuntu:ubuntu\nubuntu:ubuntu\nroot:root\n");
        // Both guests have replied: only after its `exec` does a process show its final user.
        assert_ne!(root_outside(host, &one), root_outside(host, &other), "two ranges of ids");
        host.run(&other.id, &format!("echo changed > {at}/user")).await;
        assert_eq!(host.run(&one.id, &format!("cat {at}/user")).await, "changed\n", "at once");
        let flags = host.run(&one.id, &format!("grep ' {at} ' /proc/self/mountinfo")).await;
        assert!(flags.contains("nosuid") && flags.contains("nodev"), "{flags}");
        assert!(!flags.contains("/volumes") && !flags.contains(host.driver.installation()), "{flags}");
        assert_nothing_mounted(host);
    });
}

/// The user of the host that is `root` in an instance.
fn root_outside(host: &TestHost, spec: &InstanceSpec) -> u32 {
    std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{}", host.init(&spec.id))).unwrap())
}

/// A full volume affects nothing else and grows under a running process.
#[test]
fn full_volume_grows_under_running_process() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let at = mount_point(&volume);
        let spec = start_with_volumes(host, &[&volume]).await;
        let ticks = format!("(while echo tick >> {at}/ticks || true; do sleep 0.02; done) >/dev/null 2>&1 & echo $!");
        let ticking = host.run(&spec.id, &ticks).await;
        let (code, output) = host.attempt(&spec.id, &format!("head -c 400M /dev/zero > {at}/fill")).await;
        assert!(code != 0 && output.contains("No space left"), "{output}");
        let file = host.data.path().join("volumes").join(volume.id.as_str()).join("data.xfs");
        assert_eq!(fs::metadata(&file).unwrap().len(), SMALL, "no more of the host's disk than it may have");
        let size = format!("df --output=size -B1M {at} | tail -n 1 | tr -d ' '");
        let before: u64 = host.run(&spec.id, &size).await.trim().parse().unwrap();
        host.driver.ensure_volume(&VolumeSpec { size_bytes: 2 * SMALL, ..volume.clone() }).await.unwrap();
        let after: u64 = host.run(&spec.id, &size).await.trim().parse().unwrap();
        assert_eq!(after - before, SMALL >> 20, "the growth is seen inside at once");
        host.run(&spec.id, &format!("head -c 100M /dev/zero > {at}/more")).await;
        let grows = format!("n=$(wc -l < {at}/ticks); until [ $(wc -l < {at}/ticks) -gt $n ]; do sleep 0.02; done");
        host.run(&spec.id, &format!("{grows}; kill {ticking}")).await;
    });
}

/// A running instance gets a volume and loses it again.
#[test]
fn volume_is_mounted_and_unmounted_live() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let (at, spec) = (mount_point(&volume), start_with_volumes(host, &[]).await);
        let init = host.init(&spec.id);
        host.run(&spec.id, &format!("(until [ -e {at}/go ]; do sleep 0.02; done; touch /tmp/seen) >/dev/null 2>&1 &"))
            .await;
        host.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        assert_nothing_mounted(host);
        host.run(&spec.id, &format!("touch {at}/go")).await;
        wait_until_works(host, &spec.id, "test -e /tmp/seen").await;
        host.driver.remove_mount(&volume.id, &spec.id).await.unwrap();
        assert_eq!(host.run(&spec.id, "ls -A /mnt").await, "", "its place is gone with it");
        host.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        assert_eq!(host.run(&spec.id, &format!("ls {at}")).await, "go\n");
        assert_eq!(host.init(&spec.id), init, "all of this without a restart");
        // What was mounted at the start can be unmounted live, too, and what a start does not name is not mounted.
        let next = InstanceSpec { boot: 2, volumes: vec![volume.id.clone()], ..spec.clone() };
        host.start(&next).await;
        host.driver.remove_mount(&volume.id, &spec.id).await.unwrap();
        host.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        host.start(&InstanceSpec { boot: 3, ..spec.clone() }).await;
        assert_eq!(host.run(&spec.id, "ls -A /mnt").await, "", "nor is its place");
    });
}

/// Synced data survives a killed instance, and a new engine knows the mounts.
#[test]
fn synced_data_survives_kill_and_new_engine() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let (at, spec) = (mount_point(&volume), start_with_volumes(host, &[&volume]).await);
        host.run(&spec.id, &format!("seq 100000 > {at}/file && sync {at}/file")).await;
        let init = host.init(&spec.id);
        assert!(std::process::Command::new("kill").args(["-9", &init.to_string()]).status().unwrap().success());
        let ended = host.wait_until(&spec.id, |seen| !seen.running).await;
        assert_eq!(ended.volumes, [], "who has ended has no volumes");
        let refused = host.driver.ensure_mount(&volume.id, &spec.id).await;
        assert!(matches!(refused, Err(Error::Permanent(_))), "{refused:?}");
        let other = start_with_volumes(host, &[&volume]).await;
        assert_eq!(host.run(&other.id, &format!("seq 100000 | cmp - {at}/file")).await, "");
        // Another driver takes its place for a moment, so that the first one can close.
        let elsewhere = tempfile::tempdir().unwrap();
        host.driver = open(elsewhere.path()).await.unwrap();
        host.driver = open(host.data.path()).await.unwrap();
        let seen = host.driver.observe_instance(&other.id).await.unwrap().unwrap();
        assert_eq!(seen.volumes, std::slice::from_ref(&volume.id));
        assert!(matches!(host.driver.remove_volume(&volume.id).await, Err(Error::Permanent(_))), "it is in use");
        host.driver.remove_mount(&volume.id, &other.id).await.unwrap();
        host.driver.remove_volume(&volume.id).await.unwrap();
    });
}

/// Volumes are found again after a reboot of the host.
#[test]
fn volumes_survive_reboot_of_host() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let (at, spec) = (mount_point(&volume), start_with_volumes(host, &[&volume]).await);
        host.run(&spec.id, &format!("seq 100000 > {at}/file && sync {at}/file {at}")).await;
        // The parts of a reboot that can be simulated: no process, no mount, no device, no engine, and another boot id.
        let init = host.init(&spec.id);
        assert!(std::process::Command::new("kill").args(["-9", &init.to_string()]).status().unwrap().success());
        let gone = async {
            while !attached_files(host.data.path()).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, gone).await.expect("the device goes with the instance");
        let elsewhere = tempfile::tempdir().unwrap();
        host.driver = open(elsewhere.path()).await.unwrap();
        let file = host.data.path().join("instances").join(spec.id.as_str()).join("instance.json");
        let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        record["process"]["boot_id"] = "another".into();
        // The pid belongs to another process by now.
        record["process"]["pid"] = std::process::id().into();
        fs::write(&file, record.to_string()).unwrap();

        host.driver = open(host.data.path()).await.unwrap();
        let seen = host.driver.observe_instance(&spec.id).await.unwrap().unwrap();
        assert!(!seen.running && seen.volumes.is_empty() && seen.end == Some(End::MachineRebooted), "{seen:?}");
        let seen = host.driver.observe_volume(&volume.id).await.unwrap().unwrap();
        assert!(seen.size_bytes == SMALL && seen.fault.is_none(), "{seen:?}");
        let seen = host.start(&InstanceSpec { boot: 2, ..spec.clone() }).await;
        assert_eq!(seen.volumes, std::slice::from_ref(&volume.id));
        assert_eq!(host.run(&spec.id, &format!("seq 100000 | cmp - {at}/file && echo more > {at}/more")).await, "");
        assert_nothing_mounted(host);
    });
}
