//! A specification of the Container Device Interface takes effect in the instance that owns the GPU, and nowhere else.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tarn_driver::{Driver, Error, InstanceSpec};

use crate::local::test_host::{TestHost, with_test_host};

/// A harmless device that no instance has by default: `/dev/fuse`.
const NUMBERS: (u32, u32) = (10, 229);

pub(crate) const SPECIFICATION: &str = r#"
cdiVersion: "0.6.0"
kind: trial.example/gpu
containerEdits:
  env: ["TRIAL_ALL=yes and no"]
  deviceNodes: [{path: /dev/trial/control, major: MAJOR, minor: MINOR, fileMode: 384, uid: 0}]
  mounts:
    - {hostPath: DATA/library.so.1, containerPath: /opt/trial/lib/library.so.1}
    - {hostPath: DATA/things, containerPath: /usr/share/trial}
    - {hostPath: /usr/bin/env, containerPath: /usr/bin/env}
  hooks:
    - {args: [nvidia-ctk, hook, create-symlinks, --link, "library.so.1::/opt/trial/lib/library.so"]}
    - {args: [nvidia-ctk, hook, update-ldcache, --folder, /opt/trial/lib]}
devices:
  - name: simulated-H100-0
    containerEdits: {env: [TRIAL_ONE=1], deviceNodes: [{path: /dev/trial0, major: 1, minor: 7}]}
  - name: simulated-H100-1
    containerEdits: {deviceNodes: [{path: /dev/trial1, major: MAJOR, minor: MINOR}]}
"#;

pub(crate) fn write_specification(data: &Path, text: &str) {
    fs::create_dir_all(data.join("cdi")).unwrap();
    fs::create_dir_all(data.join("things")).unwrap();
    fs::write(data.join("library.so.1"), "a library").unwrap();
    fs::write(data.join("things/one"), "1").unwrap();
    for path in ["things", "things/one", "library.so.1"] {
        let mode = if path == "things" { 0o755 } else { 0o644 };
        fs::set_permissions(data.join(path), Permissions::from_mode(mode)).unwrap();
    }
    let text = text.replace("DATA", data.to_str().unwrap());
    let text = text.replace("MAJOR", &NUMBERS.0.to_string()).replace("MINOR", &NUMBERS.1.to_string());
    let path = data.join("cdi/trial.yaml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
}

pub(crate) fn with_gpus(host: &TestHost, gpus: &[&str]) -> InstanceSpec {
    let mut spec = host.spec();
    spec.shape.gpus = gpus.len() as u32;
    spec.shape.gpu_model = Some("H100".into());
    spec.gpus = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
    spec
}

/// The owner of a GPU gets what it needs, and no other instance does.
#[test]
fn only_owner_gets_what_its_gpu_needs() {
    with_test_host(async |host| {
        write_specification(host.data.path(), SPECIFICATION);
        let (owner, other) = (with_gpus(host, &["simulated-H100-0"]), host.spec());
        tokio::join!(host.start(&owner), host.start(&other));
        let numbers = host.run(&owner.id, "stat -c '%F %t:%T %a %U' /dev/trial0 /dev/trial/control").await;
        let control = format!("character special file {:x}:{:x} 600 root", NUMBERS.0, NUMBERS.1);
        assert_eq!(numbers.trim(), format!("character special file 1:7 666 root\n{control}"));
        let (code, output) = host.attempt(&owner.id, "dd if=/dev/zero of=/dev/trial0 bs=1 count=1").await;
        assert!(code != 0 && output.contains("No space left"), "it is the device that it should be: {output}");
        host.run(&owner.id, "sudo sh -c ': <> /dev/trial/control'").await;
        let (code, output) = host.attempt(&owner.id, "sh -c ': <> /dev/trial/control'").await;
        assert!(code != 0 && output.contains("ermission denied"), "only root may: {output}");
        assert_eq!(host.run(&owner.id, "cat /opt/trial/lib/library.so /usr/share/trial/one").await, "a library1");
        let environment = host.run(&owner.id, "env").await;
        for line in ["TRIAL_ALL=yes and no", "TRIAL_ONE=1", "LD_LIBRARY_PATH=/opt/trial/lib"] {
            assert!(environment.lines().any(|found| found == line), "{line}: {environment}");
        }
        for write in ["echo x > /opt/trial/lib/library.so.1", "touch /usr/share/trial/two", "rm /dev/trial0"] {
            let (code, output) = host.attempt(&owner.id, &format!("sudo sh -c '{write}'")).await;
            assert!(code != 0, "{write}: {output}");
        }
        let mounts = host.run(&owner.id, "cat /proc/self/mounts").await;
        assert!(!mounts.contains("/usr/bin/env"), "what is there already is not mounted once more: {mounts}");

        let absent = "ls /dev/trial0 /dev/trial /opt/trial /usr/share/trial /run/tarn/environment";
        let (_, output) = host.attempt(&other.id, absent).await;
        assert_eq!(output.matches("No such file").count(), 5, "{output}");
        assert!(!host.run(&other.id, "env").await.contains("TRIAL"));
        let make = format!("sudo sh -c 'mknod /tmp/x c {} {} && : <> /tmp/x'", NUMBERS.0, NUMBERS.1);
        for id in [&owner.id, &other.id] {
            let (code, output) = host.attempt(id, &make).await;
            assert!(code != 0, "no device can be created inside: {output}");
        }
    });
}

/// A restart reads the specification again.
#[test]
fn restart_reads_specification_again() {
    with_test_host(async |host| {
        write_specification(host.data.path(), SPECIFICATION);
        let mut spec = with_gpus(host, &["simulated-H100-0", "simulated-H100-1"]);
        host.start(&spec).await;
        host.run(&spec.id, "sudo test -c /dev/trial1 -a -c /dev/trial0").await;
        write_specification(host.data.path(), &SPECIFICATION.replace("/dev/trial1", "/dev/other1"));
        spec.boot += 1;
        host.start(&spec).await;
        host.run(&spec.id, "sh -c 'test -c /dev/other1 && test ! -e /dev/trial1'").await;
        // A wrong specification is found before the instance is stopped.
        write_specification(host.data.path(), &SPECIFICATION.replace("/dev/trial1", "/dev/../etc/passwd"));
        spec.boot += 1;
        let refused = host.driver.ensure_instance(&spec).await;
        assert!(matches!(&refused, Err(Error::Permanent(why)) if why.contains("ask the operator")), "{refused:?}");
        host.run(&spec.id, "test -c /dev/other1").await;
    });
}

/// Simulated GPUs need no specification.
#[test]
fn simulated_gpus_need_no_specification() {
    with_test_host(async |host| {
        let spec = with_gpus(host, &["simulated-H100-1"]);
        host.start(&spec).await;
        host.run(&spec.id, "true").await;
        let seen = host.driver.gpus().await.unwrap().seen;
        assert!(seen.len() == 2 && seen.iter().all(|seen| seen.faults.is_empty()), "{seen:?}");
        // A process of the owner is not foreign; any other process is.
        let script = |pid: &dyn std::fmt::Display| {
            let text = format!("[[gpu]]\nid = \"simulated-H100-1\"\nprocesses = [{pid}]\n");
            fs::write(host.data.path().join("faults.toml"), text).unwrap();
        };
        script(&std::process::id());
        let seen = host.driver.gpus().await.unwrap().seen;
        assert!(seen[1].faults[0].to_string().contains("belongs to no instance"), "{seen:?}");
        script(&host.init(&spec.id));
        assert!(host.driver.gpus().await.unwrap().seen[1].faults.is_empty());
        let mut ended = Command::new("true").spawn().unwrap();
        script(&ended.id());
        ended.wait().unwrap();
        let seen = host.driver.gpus().await.unwrap().seen;
        assert!(seen[1].faults.is_empty(), "what has ended uses nothing: {seen:?}");
    });
}

/// What a GPU needs may appear later than the engine: the start is retried, and a running instance is not stopped.
#[test]
fn missing_parts_are_waited_for() {
    with_test_host(async |host| {
        let later = host.data.path().join("later");
        let waits = async |spec: &InstanceSpec| {
            let refused = host.driver.ensure_instance(spec).await;
            assert!(matches!(&refused, Err(Error::Retry(_))), "{refused:?}");
        };
        waits(&with_gpus(host, &["simulated-H100-7"])).await;
        let mut spec = with_gpus(host, &["simulated-H100-0"]);
        host.start(&spec).await;
        for text in [
            SPECIFICATION.replace("DATA/library.so.1", "DATA/later"),
            SPECIFICATION
                .replace("{path: /dev/trial0, major: 1, minor: 7}", "{path: /dev/trial0, hostPath: /dev/trial-no}"),
        ] {
            write_specification(host.data.path(), &text);
            spec.boot += 1;
            waits(&spec).await;
            host.run(&spec.id, "true").await;
        }
        spec.gpus = vec!["simulated-H100-7".into()];
        waits(&spec).await;
        host.run(&spec.id, "true").await;
        write_specification(host.data.path(), &SPECIFICATION.replace("DATA/library.so.1", "DATA/later"));
        fs::write(&later, "it has come").unwrap();
        spec.gpus = vec!["simulated-H100-0".into()];
        host.start(&spec).await;
        assert_eq!(host.run(&spec.id, "sudo cat /opt/trial/lib/library.so").await, "it has come");
    });
}
