//! A separate driver for every test, calls to its instances, and what of it is visible on the host.

use std::collections::BTreeSet;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tarn_driver::gpus::cdi::Directories;
use tarn_driver::gpus::{SimulatedProbe, Watch};
use tarn_driver::host::Simulated;
use tarn_driver::local::{ImageSettings, LocalDriver, LocalSettings, Protections};
use tarn_driver::{Driver, Error, InstanceSpec, ObservedInstance};
use tarn_link::{Frame, FromGuest, Program, Purpose, Session, opening};
use tarn_model::capacity::{Inventory, Shape};
use tarn_model::ids::{ClusterId, InstanceId};
use tarn_store::testing::{ManualClock, SeededIds};

/// The guest that the program under test embeds.
static GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tarn-guest.zst"));

/// How long anything may take before a test gives up; a busy host takes many times as long as an idle one.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct TestHost {
    pub(crate) driver: LocalDriver,
    /// Different in every test.
    pub(crate) ids: SeededIds,
    pub(crate) data: tempfile::TempDir,
}

/// Runs a test on its own driver and removes everything it created, also when the test fails.
pub(crate) fn with_test_host(test: impl AsyncFnOnce(&mut TestHost)) {
    with_test_host_for_images(async || ((), loopback_images()), async |host, ()| test(host).await);
}

/// The same with image settings, which are prepared first.
pub(crate) fn with_test_host_for_images<T>(
    prepare: impl AsyncFnOnce() -> (T, ImageSettings),
    test: impl AsyncFnOnce(&mut TestHost, T),
) {
    if !is_root() {
        eprintln!("skipped: the local driver needs root");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let data = tempfile::tempdir().unwrap();
        let (prepared, images) = prepare().await;
        let driver = open_with_images(data.path(), &data.path().join("volumes"), images).await.unwrap();
        let mut host = TestHost { driver, ids: SeededIds::new(std::process::id().into()), data };
        let outcome = AssertUnwindSafe(test(&mut host, prepared)).catch_unwind().await;
        for id in host.driver.observe().await.unwrap().instances.keys() {
            host.driver.remove_instance(id).await.unwrap();
        }
        for id in host.driver.observe().await.unwrap().volumes.keys() {
            host.driver.remove_volume(id).await.unwrap();
        }
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
        assert_eq!(traces(host.driver.installation()), Vec::<String>::new(), "nothing is left on the host");
        assert_eq!(fs::read_dir(host.data.path().join("instances")).unwrap().count(), 0, "nor on its disk");
        assert_eq!(attached_files(host.data.path()), Vec::<String>::new(), "nor a device of something there");
        assert_eq!(entry_names(&host.data.path().join("volumes")), ["installation"], "nor among the volumes");
    });
}

fn is_root() -> bool {
    // The owner of a process's own directory in /proc is its effective user.
    std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0
}

pub(crate) async fn open(data: &Path) -> Result<LocalDriver, Error> {
    open_with_pool(data, &data.join("volumes")).await
}

/// Opens a driver with its pool elsewhere.
pub(crate) async fn open_with_pool(data: &Path, pool: &Path) -> Result<LocalDriver, Error> {
    open_with_images(data, pool, loopback_images()).await
}

/// The settings for registries of tests, which are on loopback addresses.
pub(crate) fn loopback_images() -> ImageSettings {
    let private_registries = ["127.0.0.1:*", "127.0.0.2:*", "localhost:*"].map(Into::into).into();
    ImageSettings { private_registries, ..ImageSettings::default() }
}

/// Opens a driver with image settings.
async fn open_with_images(data: &Path, pool: &Path, images: ImageSettings) -> Result<LocalDriver, Error> {
    let gpus = "2xH100".parse::<Simulated>().unwrap().gpus();
    let probe = SimulatedProbe::new(gpus.clone(), Some(data.join("faults.toml")));
    LocalDriver::open(LocalSettings {
        data: data.to_owned(),
        pool: pool.to_owned(),
        run: "/run/tarn".into(),
        helper: vec![env!("CARGO_BIN_EXE_tarn").into(), "instance-helper".into()],
        guest: GUEST,
        disk_bytes: Some(1_000_000_000),
        protections: Protections::default(),
        lxcfs: None,
        policy: Default::default(),
        images,
        inventory: Inventory { cpu_milli: 8_000, memory_bytes: 8 << 30, gpus, storage_bytes: 0 },
        gpus: Arc::new(Watch::simulated(probe, Arc::new(ManualClock::default()))),
        cdi: Directories(vec![data.join("cdi")]),
    })
    .await
}

/// A watch without GPUs.
pub(crate) fn no_gpus() -> Arc<Watch> {
    Arc::new(Watch::simulated(SimulatedProbe::new(Vec::new(), None), Arc::new(ManualClock::default())))
}

impl TestHost {
    /// The specification of an instance that is alone in its cluster.
    pub(crate) fn spec(&self) -> InstanceSpec {
        InstanceSpec {
            id: InstanceId::fresh(&self.ids),
            cluster: ClusterId::fresh(&self.ids),
            node: 0,
            name: "node-0".into(),
            shape: Shape { cpu_milli: 500, memory_bytes: 256 << 20, gpus: 0, gpu_model: None },
            gpus: Vec::new(),
            container: None,
            boot: 1,
            volumes: Vec::new(),
            share: "share".into(),
        }
    }

    pub(crate) async fn start(&self, spec: &InstanceSpec) -> ObservedInstance {
        self.ensure(spec).await.unwrap()
    }

    /// Starts an instance, with retries where the driver asks for them: other tests create networks, too.
    pub(crate) async fn ensure(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error> {
        let ensured = async {
            loop {
                match self.driver.ensure_instance(spec).await {
                    Err(Error::Retry(why)) => eprintln!("tried again: {why}"),
                    other => return other,
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, ensured).await.expect("the instance starts")
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) async fn run(&self, id: &InstanceId, command: &str) -> String {
        let (code, output) = self.attempt(id, command).await;
        assert_eq!(code, 0, "{command} works: {output}");
        output
    }

    /// Runs a command as the default user, and returns its exit code and all its output.
    pub(crate) async fn attempt(&self, id: &InstanceId, command: &str) -> (u32, String) {
        self.outcome(id, command).await.expect("the session ends with its outcome")
    }

    /// The same; `None` when the guest ended before it reported the outcome.
    pub(crate) async fn outcome(&self, id: &InstanceId, command: &str) -> Option<(u32, String)> {
        let call = async {
            let session = Session { program: Program::Exec(command.into()), ..Session::default() };
            let stream = self.driver.connect(id).await.unwrap();
            let (_, (mut reader, mut writer)) =
                opening::open(stream, Purpose::Session(Box::new(session))).await.unwrap();
            // A command that does not read its input may have ended by now.
            let _unread = writer.eof().await;
            let mut output = Vec::new();
            loop {
                match reader.read().await.ok()?? {
                    Frame::Data(data) | Frame::Stderr(data) => output.extend_from_slice(&data),
                    Frame::Eof => {}
                    Frame::Message(message) => match Frame::parse::<FromGuest>(&message).unwrap() {
                        FromGuest::Exited { code } => {
                            return Some((code, String::from_utf8_lossy(&output).into_owned()));
                        }
                        other => return Some((128, format!("{other:?} {}", String::from_utf8_lossy(&output)))),
                    },
                }
            }
        };
        tokio::time::timeout(TIMEOUT, call).await.unwrap_or_else(|_| panic!("{command} does not end"))
    }

    /// Waits until the observation of an instance meets a condition.
    pub(crate) async fn wait_until(&self, id: &InstanceId, is: impl Fn(&ObservedInstance) -> bool) -> ObservedInstance {
        let seen = async {
            loop {
                let seen = self.driver.observe_instance(id).await.unwrap().unwrap();
                if is(&seen) {
                    return seen;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, seen).await.expect("the instance is seen as it should be")
    }

    /// The first process of an instance, by its pid on the host.
    pub(crate) fn init(&self, id: &InstanceId) -> u32 {
        let record = fs::read(self.data.path().join("instances").join(id.as_str()).join("instance.json")).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        u32::try_from(record["process"]["pid"].as_u64().unwrap()).unwrap()
    }
}

/// Everything on the host that carries an installation id: control groups, directories, processes, mounts, interfaces
/// and tables. Namespaces end with their processes, because nothing else holds them.
pub(crate) fn traces(installation: &str) -> Vec<String> {
    let mut traces = BTreeSet::new();
    let group = format!("tarn-{installation}");
    for hierarchy in fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path()) {
        traces.extend(hierarchy.join(&group).exists().then(|| format!("group in {}", hierarchy.display())));
    }
    traces.extend(Path::new("/sys/fs/cgroup").join(&group).exists().then(|| "group".to_owned()));
    traces.extend(Path::new("/run/tarn").join(installation).exists().then(|| "directory".to_owned()));
    traces.extend(mounts(installation).into_iter().map(|line| format!("mount {line}")));
    for process in fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
        let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        // A zombie stays in its group until its parent has waited for it, which is up to the parent.
        let is_dead = || fs::read_to_string(process.join("status")).map_or(true, |text| text.contains("State:\tZ"));
        traces.extend((groups.contains(&group) && !is_dead()).then(|| format!("process {}", process.display())));
    }
    for interface in fs::read_dir("/sys/class/net").unwrap().flatten() {
        let name = interface.file_name().to_string_lossy().into_owned();
        traces.extend(name.contains(installation).then_some(name));
    }
    let tables = Command::new("nft").args(["list", "tables"]).output().map(|output| output.stdout).unwrap_or_default();
    traces.extend(String::from_utf8_lossy(&tables).contains(installation).then(|| "table".to_owned()));
    traces.into_iter().collect()
}

/// The mounts of the host that carry an installation id.
pub(crate) fn mounts(installation: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(installation)).map(str::to_owned).collect()
}

/// The files below a directory that are attached to loop devices.
pub(crate) fn attached_files(below: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.map(|file| file.trim_end().to_owned()).filter(|file| Path::new(file).starts_with(below)).collect()
}

/// The names in a directory, sorted.
pub(crate) fn entry_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
