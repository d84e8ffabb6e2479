//! Faulty volumes: reported, refused, never touched, and usable again when they are repaired.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use tarn_driver::{Driver, Error, InstanceSpec, VolumeSpec};

use super::GIB;
use super::inspection::with_volumes;
use super::test_disks::TestMount;
use crate::local::test_host::TestHost;

/// What is done to the file of a volume, and what its owner sees.
type Case = (&'static str, fn(&Path), &'static str);

const CASES: [Case; 5] = [
    ("no superblock", |file| write(file, 0, &[0; 4096]), "no longer contains its filesystem"),
    ("another label", |file| write(file, 108, b"somebodyelse"), "no longer contains its filesystem"),
    ("a file that was cut", |file| open(file).set_len(GIB / 2).unwrap(), "shorter"),
    ("an empty file", |file| open(file).set_len(0).unwrap(), "no longer contains its filesystem"),
    ("no file", |file| fs::rename(file, file.with_extension("away")).unwrap(), "missing"),
];

/// A damaged volume is refused and not changed.
#[test]
fn damaged_volume_is_refused_and_unchanged() {
    with_volumes(async |host| {
        for (what, damage, expected) in CASES {
            let spec = host.volume(GIB);
            let sound = host.driver.ensure_volume(&spec).await.unwrap();
            let (file, copy) = (host.file(&spec), host.data.path().join("copy"));
            copy_file(&file, &copy);
            damage(&file);
            let before = read_beginning(&file);
            assert_refused(host, &spec, expected).await;
            assert_eq!(read_beginning(&file), before, "{what}: not a byte is changed");
            host.wait_until_detached().await;
            fs::rename(&copy, &file).unwrap();
            let mended = host.driver.ensure_volume(&spec).await;
            assert_eq!(mended, Ok(sound), "{what}: it is fine again when its file is back");
            damage(&file);
            host.driver.remove_volume(&spec.id).await.unwrap();
            assert_eq!(host.driver.observe_volume(&spec.id).await, Ok(None), "{what}: it can be destroyed");
        }
    });
}

/// A volume that the kernel refuses to mount stays refused until it is repaired.
#[test]
fn unmountable_volume_is_refused_until_repaired() {
    with_volumes(async |host| {
        let spec = host.volume(GIB);
        host.driver.ensure_volume(&spec).await.unwrap();
        // The header of the free space, right behind the superblock.
        let file = host.file(&spec);
        let mut header = [0; 4096];
        open(&file).read_exact_at(&mut header, 4096).unwrap();
        write(&file, 4096, &[0xff; 4096]);
        let instance = InstanceSpec { volumes: vec![spec.id.clone()], ..host.spec() };
        let started = host.ensure(&instance).await;
        assert!(matches!(&started, Err(Error::Permanent(why)) if why.contains("xfs_repair")), "{started:?}");
        let note = file.with_file_name("fault");
        assert!(fs::read_to_string(&note).unwrap().contains("xfs_repair"), "the operator finds what to do");
        write(&file, 4096, &header);
        assert_refused(host, &spec, "damaged").await;
        fs::remove_file(note).unwrap();
        host.driver.ensure_volume(&spec).await.unwrap();
        host.start(&instance).await;
    });
}

/// A filesystem that the kernel shut down while it was mounted is reported.
#[test]
fn shut_down_filesystem_is_reported() {
    with_volumes(async |host| {
        let spec = host.volume(GIB);
        let made = host.driver.ensure_volume(&spec).await.unwrap();
        let mut mounted = TestMount::at(&host.file(&spec), host.data.path());
        mounted.run("head -c 100M /dev/zero > file && sync -f file");
        let full = host.driver.observe_volume(&spec.id).await.unwrap().unwrap();
        assert!(
            full.used_bytes.unwrap() >= made.used_bytes.unwrap() + (100 << 20),
            "what is written is counted: {full:?}"
        );
        mounted.run("xfs_io -x -c 'shutdown -f' .");
        assert_refused(host, &spec, "failed while it was in use").await;
        drop(mounted);
        host.wait_until_detached().await;
        let after = host.driver.ensure_volume(&spec).await.unwrap();
        assert_eq!(after.fault, None, "nothing is wrong with its file");
    });
}

/// A replaced file is not used while the former one is mounted.
#[test]
fn replaced_file_is_refused_while_mounted() {
    with_volumes(async |host| {
        let spec = host.volume(GIB);
        let sound = host.driver.ensure_volume(&spec).await.unwrap();
        let (file, copy) = (host.file(&spec), host.data.path().join("copy"));
        copy_file(&file, &copy);
        let instance = InstanceSpec { volumes: vec![spec.id.clone()], ..host.spec() };
        host.start(&instance).await;
        fs::rename(&copy, &file).unwrap();
        let seen = host.driver.observe_volume(&spec.id).await.unwrap().unwrap();
        assert!(seen.fault.is_some_and(|fault| fault.contains("replaced") && fault.contains("detach")));
        let other = InstanceSpec { volumes: vec![spec.id.clone()], ..host.spec() };
        let started = host.driver.ensure_instance(&other).await;
        assert!(matches!(&started, Err(Error::Permanent(why)) if why.contains("replaced")), "{started:?}");
        host.driver.remove_mount(&spec.id, &instance.id).await.unwrap();
        host.wait_until_detached().await;
        assert_eq!(host.driver.observe_volume(&spec.id).await, Ok(Some(sound)), "the new one is fine");
    });
}

/// A device number is given to another file as soon as it is free: a helper whose engine has died must not mistake
/// another tenant's volume for the one it was ordered to mount.
#[test]
fn helper_mounts_only_the_ordered_file() {
    with_volumes(async |host| {
        let (own, foreign) = (host.volume(GIB), host.volume(GIB));
        for spec in [&own, &foreign] {
            host.driver.ensure_volume(spec).await.unwrap();
        }
        let holder = InstanceSpec { volumes: vec![foreign.id.clone()], ..host.spec() };
        host.start(&holder).await;
        let taker = host.spec();
        host.start(&taker).await;
        let record = host.data.path().join("instances").join(taker.id.as_str()).join("instance.json");
        let record: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
        let device = host.device().await;
        let (_, minor) = device.split_once(':').unwrap();
        let file = |spec: &VolumeSpec| fs::metadata(host.file(spec)).map(|found| [found.dev(), found.ino()]).unwrap();
        let order = |file: [u64; 2]| {
            let path = format!("/dev/loop{minor}");
            let number = fs::metadata(&path).unwrap().rdev();
            let volume = serde_json::json!({ "id": own.id, "device": path, "number": number, "file": file });
            serde_json::json!({ "mount": {
                "process": record["process"], "id_base": record["id_base"], "volumes": [volume],
            } })
        };
        let answer = run_helper(&order(file(&own)));
        assert!(answer.contains("another device"), "{answer}");
        assert_eq!(host.driver.observe_instance(&taker.id).await.unwrap().unwrap().volumes, []);
        let answer = run_helper(&order(file(&foreign)));
        assert!(answer.contains("done"), "and the order was right but for the file: {answer}");
    });
}

/// Runs the helper with an order, and returns its reports.
fn run_helper(order: &serde_json::Value) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
    let mut helper = command.arg("instance-helper").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(helper.stdin.take().unwrap(), "{order}").unwrap();
    String::from_utf8(helper.wait_with_output().unwrap().stdout).unwrap()
}

fn copy_file(file: &Path, to: &Path) {
    assert!(Command::new("cp").arg("--sparse=always").arg(file).arg(to).status().unwrap().success());
}

/// Asserts that the fault is reported to the owner, and that the volume cannot be used.
async fn assert_refused(host: &TestHost, spec: &VolumeSpec, expected: &str) {
    let seen = host.driver.observe_volume(&spec.id).await.unwrap().unwrap();
    let fault = seen.fault.clone().unwrap_or_default();
    assert!(fault.contains(expected) && fault.contains("ask the operator") && fault.contains("destroy"), "{fault}");
    assert!(!fault.contains('/'), "no path of the host: {fault}");
    assert_eq!(host.driver.observe().await.unwrap().volumes.get(&spec.id), Some(&seen));
    let permanent = |answer: &Error| matches!(answer, Error::Permanent(why) if why.contains(expected));
    for size_bytes in [spec.size_bytes, 2 * spec.size_bytes] {
        let ensured = host.driver.ensure_volume(&VolumeSpec { size_bytes, ..spec.clone() }).await.unwrap_err();
        assert!(permanent(&ensured), "{ensured}");
    }
    let instance = InstanceSpec { volumes: vec![spec.id.clone()], ..host.spec() };
    let started = host.driver.ensure_instance(&instance).await.unwrap_err();
    assert!(permanent(&started), "{started}");
}

fn open(file: &Path) -> File {
    File::options().read(true).write(true).open(file).unwrap()
}

fn write(file: &Path, at: u64, bytes: &[u8]) {
    open(file).write_all_at(bytes, at).unwrap();
}

/// The length and the first megabyte of a file, if there is one.
fn read_beginning(file: &Path) -> Option<(u64, Vec<u8>)> {
    let file = File::open(file).ok()?;
    let mut bytes = vec![0; 1 << 20];
    let read = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(read);
    Some((file.metadata().unwrap().len(), bytes))
}
