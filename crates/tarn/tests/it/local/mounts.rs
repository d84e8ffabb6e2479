//! Volumes inside of instances: shared, kept, full, grown, mounted while something runs, and never seen on the machine.

mod crowds;
mod held;
mod hostile;
mod slow;

use std::fs;
use std::time::Duration;

use tarn_driver::{Driver, End, Error, InstanceSpec, VolumeSpec};
use tarn_model::ids::{InstanceId, VolumeId};

use crate::local::machine::{Machine, PATIENCE, loops, mounts, on_a_machine, open};

/// About the smallest that a volume can be.
const SMALL: u64 = 320 << 20;

/// A volume that exists.
async fn made(machine: &Machine) -> VolumeSpec {
    let spec = VolumeSpec { id: VolumeId::fresh(&machine.ids), size_bytes: SMALL };
    machine.driver.ensure_volume(&spec).await.unwrap();
    spec
}

/// Where a volume is in an instance.
fn place(volume: &VolumeSpec) -> String {
    format!("/mnt/{}", volume.id)
}

/// An instance that runs, with these volumes from its start.
async fn started(machine: &Machine, volumes: &[&VolumeSpec]) -> InstanceSpec {
    let volumes = volumes.iter().map(|volume| volume.id.clone()).collect();
    let spec = InstanceSpec { volumes, ..machine.spec() };
    machine.start(&spec).await;
    spec
}

/// Waits until a command works inside.
async fn until_it_works(machine: &Machine, id: &InstanceId, command: &str) {
    let works = async { while machine.attempt(id, command).await.0 != 0 {} };
    tokio::time::timeout(PATIENCE, works).await.unwrap_or_else(|_| panic!("{command} works in the end"));
}

/// Nothing of a volume may show on the machine.
fn nothing_is_mounted(machine: &Machine) {
    for part in [machine.driver.installation(), &machine.data.path().display().to_string(), "/mnt/s-"] {
        assert_eq!(mounts(part), Vec::<String>::new(), "nothing is mounted on the machine");
    }
}

#[test]
fn a_volume_is_shared_and_its_files_keep_their_owner() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let at = place(&volume);
        let [one, other] = [started(machine, &[&volume]).await, started(machine, &[&volume]).await];
        machine.run(&one.id, &format!("echo mine > {at}/user; sudo sh -c 'echo theirs > {at}/root'")).await;
        let seen = machine.run(&other.id, &format!("cd {at} && cat user root && stat -c %U:%G . user root")).await;
        assert_eq!(seen, "mine\ntheirs\nubuntu:ubuntu\nubuntu:ubuntu\nroot:root\n");
        // Both guests have answered: a process shows whose it is when it has become what it was started for.
        assert_ne!(root_outside(machine, &one), root_outside(machine, &other), "two ranges of ids");
        machine.run(&other.id, &format!("echo changed > {at}/user")).await;
        assert_eq!(machine.run(&one.id, &format!("cat {at}/user")).await, "changed\n", "at once");
        let flags = machine.run(&one.id, &format!("grep ' {at} ' /proc/self/mountinfo")).await;
        assert!(flags.contains("nosuid") && flags.contains("nodev"), "{flags}");
        assert!(!flags.contains("/volumes") && !flags.contains(machine.driver.installation()), "{flags}");
        nothing_is_mounted(machine);
    });
}

/// The user of the machine that is `root` in an instance.
fn root_outside(machine: &Machine, spec: &InstanceSpec) -> u32 {
    std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{}", machine.init(&spec.id))).unwrap())
}

#[test]
fn a_full_volume_harms_nobody_and_grows_under_a_running_process() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let at = place(&volume);
        let spec = started(machine, &[&volume]).await;
        let ticks = format!("(while echo tick >> {at}/ticks || true; do sleep 0.02; done) >/dev/null 2>&1 & echo $!");
        let ticking = machine.run(&spec.id, &ticks).await;
        let (code, said) = machine.attempt(&spec.id, &format!("head -c 400M /dev/zero > {at}/fill")).await;
        assert!(code != 0 && said.contains("No space left"), "{said}");
        let file = machine.data.path().join("volumes").join(volume.id.as_str()).join("data.xfs");
        assert_eq!(fs::metadata(&file).unwrap().len(), SMALL, "no more of the machine's disk than it may have");
        let size = format!("df --output=size -B1M {at} | tail -n 1 | tr -d ' '");
        let before: u64 = machine.run(&spec.id, &size).await.trim().parse().unwrap();
        machine.driver.ensure_volume(&VolumeSpec { size_bytes: 2 * SMALL, ..volume.clone() }).await.unwrap();
        let after: u64 = machine.run(&spec.id, &size).await.trim().parse().unwrap();
        assert_eq!(after - before, SMALL >> 20, "the growth is seen inside at once");
        machine.run(&spec.id, &format!("head -c 100M /dev/zero > {at}/more")).await;
        let grows = format!("n=$(wc -l < {at}/ticks); until [ $(wc -l < {at}/ticks) -gt $n ]; do sleep 0.02; done");
        machine.run(&spec.id, &format!("{grows}; kill {ticking}")).await;
    });
}

#[test]
fn a_running_instance_gets_a_volume_and_loses_it_again() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let (at, spec) = (place(&volume), started(machine, &[]).await);
        let init = machine.init(&spec.id);
        machine
            .run(&spec.id, &format!("(until [ -e {at}/go ]; do sleep 0.02; done; touch /tmp/seen) >/dev/null 2>&1 &"))
            .await;
        machine.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        nothing_is_mounted(machine);
        machine.run(&spec.id, &format!("touch {at}/go")).await;
        until_it_works(machine, &spec.id, "test -e /tmp/seen").await;
        machine.driver.remove_mount(&volume.id, &spec.id).await.unwrap();
        assert_eq!(machine.run(&spec.id, "ls -A /mnt").await, "", "its place is gone with it");
        machine.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        assert_eq!(machine.run(&spec.id, &format!("ls {at}")).await, "go\n");
        assert_eq!(machine.init(&spec.id), init, "all of this without a restart");
        // What was mounted at the start can be unmounted live, too, and what is not asked for at a start is not there.
        let next = InstanceSpec { boot: 2, volumes: vec![volume.id.clone()], ..spec.clone() };
        machine.start(&next).await;
        machine.driver.remove_mount(&volume.id, &spec.id).await.unwrap();
        machine.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        machine.start(&InstanceSpec { boot: 3, ..spec.clone() }).await;
        assert_eq!(machine.run(&spec.id, "ls -A /mnt").await, "", "nor is its place");
    });
}

#[test]
fn what_was_synced_outlives_a_violent_end_and_a_new_engine_knows_of_it() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let (at, spec) = (place(&volume), started(machine, &[&volume]).await);
        machine.run(&spec.id, &format!("seq 100000 > {at}/file && sync {at}/file")).await;
        let init = machine.init(&spec.id);
        assert!(std::process::Command::new("kill").args(["-9", &init.to_string()]).status().unwrap().success());
        let ended = machine.until(&spec.id, |seen| !seen.running).await;
        assert_eq!(ended.volumes, [], "who has ended has no volumes");
        let refused = machine.driver.ensure_mount(&volume.id, &spec.id).await;
        assert!(matches!(refused, Err(Error::Permanent(_))), "{refused:?}");
        let other = started(machine, &[&volume]).await;
        assert_eq!(machine.run(&other.id, &format!("seq 100000 | cmp - {at}/file")).await, "");
        // Another driver takes its place for a moment, so that the first one can end.
        let elsewhere = tempfile::tempdir().unwrap();
        machine.driver = open(elsewhere.path()).await.unwrap();
        machine.driver = open(machine.data.path()).await.unwrap();
        let seen = machine.driver.observe_instance(&other.id).await.unwrap().unwrap();
        assert_eq!(seen.volumes, std::slice::from_ref(&volume.id));
        assert!(matches!(machine.driver.remove_volume(&volume.id).await, Err(Error::Permanent(_))), "it is in use");
        machine.driver.remove_mount(&volume.id, &other.id).await.unwrap();
        machine.driver.remove_volume(&volume.id).await.unwrap();
    });
}

#[test]
fn volumes_are_found_again_when_the_machine_was_restarted() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let (at, spec) = (place(&volume), started(machine, &[&volume]).await);
        machine.run(&spec.id, &format!("seq 100000 > {at}/file && sync {at}/file {at}")).await;
        // What of a restart can be had here: no process, no mount, no device, no engine, and another name for this start.
        let init = machine.init(&spec.id);
        assert!(std::process::Command::new("kill").args(["-9", &init.to_string()]).status().unwrap().success());
        let gone = async {
            while !loops(machine.data.path()).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("the device goes with the instance");
        let elsewhere = tempfile::tempdir().unwrap();
        machine.driver = open(elsewhere.path()).await.unwrap();
        let file = machine.data.path().join("instances").join(spec.id.as_str()).join("instance.json");
        let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        record["process"]["boot_id"] = "another".into();
        // The number of the process belongs to somebody else by now.
        record["process"]["pid"] = std::process::id().into();
        fs::write(&file, record.to_string()).unwrap();

        machine.driver = open(machine.data.path()).await.unwrap();
        let seen = machine.driver.observe_instance(&spec.id).await.unwrap().unwrap();
        assert!(!seen.running && seen.volumes.is_empty() && seen.end == Some(End::MachineRebooted), "{seen:?}");
        let seen = machine.driver.observe_volume(&volume.id).await.unwrap().unwrap();
        assert!(seen.size_bytes == SMALL && seen.fault.is_none(), "{seen:?}");
        let seen = machine.start(&InstanceSpec { boot: 2, ..spec.clone() }).await;
        assert_eq!(seen.volumes, std::slice::from_ref(&volume.id));
        assert_eq!(machine.run(&spec.id, &format!("seq 100000 | cmp - {at}/file && echo more > {at}/more")).await, "");
        nothing_is_mounted(machine);
    });
}
