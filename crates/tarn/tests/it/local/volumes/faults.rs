//! Volumes that are not as they should be: seen, refused, never touched, and fine again when they are mended.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use tarn_driver::{Driver, Error, InstanceSpec, VolumeSpec};

use super::GIB;
use super::disks::Mounted;
use super::looks::with_volumes;
use crate::local::machine::Machine;

/// What is done to the file of a volume, and what its owner is told.
type Case = (&'static str, fn(&Path), &'static str);

const CASES: [Case; 5] = [
    ("no superblock", |file| write(file, 0, &[0; 4096]), "does not hold its filesystem"),
    ("another label", |file| write(file, 108, b"somebodyelse"), "does not hold its filesystem"),
    ("a file that was cut", |file| open(file).set_len(GIB / 2).unwrap(), "shorter"),
    ("an empty file", |file| open(file).set_len(0).unwrap(), "does not hold its filesystem"),
    ("no file", |file| fs::rename(file, file.with_extension("away")).unwrap(), "missing"),
];

#[test]
fn what_is_damaged_is_refused_and_left_as_it_is() {
    with_volumes(async |machine| {
        for (what, damage, told) in CASES {
            let spec = machine.volume(GIB);
            let sound = machine.driver.ensure_volume(&spec).await.unwrap();
            let (file, copy) = (machine.file(&spec), machine.data.path().join("copy"));
            copied(&file, &copy);
            damage(&file);
            let before = beginning(&file);
            refused(machine, &spec, told).await;
            assert_eq!(beginning(&file), before, "{what}: not a byte is changed");
            machine.no_loops().await;
            fs::rename(&copy, &file).unwrap();
            let mended = machine.driver.ensure_volume(&spec).await;
            assert_eq!(mended, Ok(sound), "{what}: it is fine again when its file is back");
            damage(&file);
            machine.driver.remove_volume(&spec.id).await.unwrap();
            assert_eq!(machine.driver.observe_volume(&spec.id).await, Ok(None), "{what}: it can be destroyed");
        }
    });
}

#[test]
fn what_the_kernel_will_not_mount_stays_refused_until_it_is_mended() {
    with_volumes(async |machine| {
        let spec = machine.volume(GIB);
        machine.driver.ensure_volume(&spec).await.unwrap();
        // The header of the free space, right behind the superblock.
        let file = machine.file(&spec);
        let mut header = [0; 4096];
        open(&file).read_exact_at(&mut header, 4096).unwrap();
        write(&file, 4096, &[0xff; 4096]);
        let instance = InstanceSpec { volumes: vec![spec.id.clone()], ..machine.spec() };
        let started = machine.ensure(&instance).await;
        assert!(matches!(&started, Err(Error::Permanent(why)) if why.contains("xfs_repair")), "{started:?}");
        let note = file.with_file_name("fault");
        assert!(fs::read_to_string(&note).unwrap().contains("xfs_repair"), "the operator finds what to do");
        write(&file, 4096, &header);
        refused(machine, &spec, "damaged").await;
        fs::remove_file(note).unwrap();
        machine.driver.ensure_volume(&spec).await.unwrap();
        machine.start(&instance).await;
    });
}

#[test]
fn a_filesystem_that_the_kernel_gave_up_while_it_was_mounted_is_seen() {
    with_volumes(async |machine| {
        let spec = machine.volume(GIB);
        let made = machine.driver.ensure_volume(&spec).await.unwrap();
        let mut mounted = Mounted::at(&machine.file(&spec), machine.data.path());
        mounted.run("head -c 100M /dev/zero > file && sync -f file");
        let full = machine.driver.observe_volume(&spec.id).await.unwrap().unwrap();
        assert!(
            full.used_bytes.unwrap() >= made.used_bytes.unwrap() + (100 << 20),
            "what is written is counted: {full:?}"
        );
        mounted.run("xfs_io -x -c 'shutdown -f' .");
        refused(machine, &spec, "failed while it was in use").await;
        drop(mounted);
        machine.no_loops().await;
        let after = machine.driver.ensure_volume(&spec).await.unwrap();
        assert_eq!(after.fault, None, "nothing is wrong with its file");
    });
}

#[test]
fn a_file_that_was_replaced_is_not_used_beside_the_one_that_is_mounted() {
    with_volumes(async |machine| {
        let spec = machine.volume(GIB);
        let sound = machine.driver.ensure_volume(&spec).await.unwrap();
        let (file, copy) = (machine.file(&spec), machine.data.path().join("copy"));
        copied(&file, &copy);
        let instance = InstanceSpec { volumes: vec![spec.id.clone()], ..machine.spec() };
        machine.start(&instance).await;
        fs::rename(&copy, &file).unwrap();
        let seen = machine.driver.observe_volume(&spec.id).await.unwrap().unwrap();
        assert!(seen.fault.is_some_and(|fault| fault.contains("replaced") && fault.contains("detach")));
        let other = InstanceSpec { volumes: vec![spec.id.clone()], ..machine.spec() };
        let started = machine.driver.ensure_instance(&other).await;
        assert!(matches!(&started, Err(Error::Permanent(why)) if why.contains("replaced")), "{started:?}");
        machine.driver.remove_mount(&spec.id, &instance.id).await.unwrap();
        machine.no_loops().await;
        assert_eq!(machine.driver.observe_volume(&spec.id).await, Ok(Some(sound)), "the new one is fine");
    });
}

/// The number of a device is given to another file as soon as nobody holds it: a helper whose engine has died must not take
/// somebody else's volume for the one that it was told to mount.
#[test]
fn a_helper_mounts_nothing_but_the_file_that_it_was_told() {
    with_volumes(async |machine| {
        let (own, foreign) = (machine.volume(GIB), machine.volume(GIB));
        for spec in [&own, &foreign] {
            machine.driver.ensure_volume(spec).await.unwrap();
        }
        let holder = InstanceSpec { volumes: vec![foreign.id.clone()], ..machine.spec() };
        machine.start(&holder).await;
        let taker = machine.spec();
        machine.start(&taker).await;
        let record = machine.data.path().join("instances").join(taker.id.as_str()).join("instance.json");
        let record: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
        let device = machine.device().await;
        let (_, minor) = device.split_once(':').unwrap();
        let file =
            |spec: &VolumeSpec| fs::metadata(machine.file(spec)).map(|found| [found.dev(), found.ino()]).unwrap();
        let order = |file: [u64; 2]| {
            let path = format!("/dev/loop{minor}");
            let number = fs::metadata(&path).unwrap().rdev();
            let volume = serde_json::json!({ "id": own.id, "device": path, "number": number, "file": file });
            serde_json::json!({ "mount": {
                "process": record["process"], "id_base": record["id_base"], "volumes": [volume],
            } })
        };
        let answer = ordered(&order(file(&own)));
        assert!(answer.contains("another device"), "{answer}");
        assert_eq!(machine.driver.observe_instance(&taker.id).await.unwrap().unwrap().volumes, []);
        let answer = ordered(&order(file(&foreign)));
        assert!(answer.contains("done"), "and the order was right but for the file: {answer}");
    });
}

/// What the helper answers to an order.
fn ordered(order: &serde_json::Value) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
    let mut helper = command.arg("instance-helper").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(helper.stdin.take().unwrap(), "{order}").unwrap();
    String::from_utf8(helper.wait_with_output().unwrap().stdout).unwrap()
}

fn copied(file: &Path, to: &Path) {
    assert!(Command::new("cp").arg("--sparse=always").arg(file).arg(to).status().unwrap().success());
}

/// Its owner is told, and nobody can use it.
async fn refused(machine: &Machine, spec: &VolumeSpec, told: &str) {
    let seen = machine.driver.observe_volume(&spec.id).await.unwrap().unwrap();
    let fault = seen.fault.clone().unwrap_or_default();
    assert!(fault.contains(told) && fault.contains("ask the operator") && fault.contains("destroy"), "{fault}");
    assert!(!fault.contains('/'), "no path of the machine: {fault}");
    assert_eq!(machine.driver.observe().await.unwrap().volumes.get(&spec.id), Some(&seen));
    let permanent = |answer: &Error| matches!(answer, Error::Permanent(why) if why.contains(told));
    for size_bytes in [spec.size_bytes, 2 * spec.size_bytes] {
        let ensured = machine.driver.ensure_volume(&VolumeSpec { size_bytes, ..spec.clone() }).await.unwrap_err();
        assert!(permanent(&ensured), "{ensured}");
    }
    let instance = InstanceSpec { volumes: vec![spec.id.clone()], ..machine.spec() };
    let started = machine.driver.ensure_instance(&instance).await.unwrap_err();
    assert!(permanent(&started), "{started}");
}

fn open(file: &Path) -> File {
    File::options().read(true).write(true).open(file).unwrap()
}

fn write(file: &Path, at: u64, bytes: &[u8]) {
    open(file).write_all_at(bytes, at).unwrap();
}

/// The length and the first megabyte of a file, if there is one.
fn beginning(file: &Path) -> Option<(u64, Vec<u8>)> {
    let file = File::open(file).ok()?;
    let mut bytes = vec![0; 1 << 20];
    let read = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(read);
    Some((file.metadata().unwrap().len(), bytes))
}
