//! A driver of its own for every test, what is said to its instances, and what of it the machine shows.

use std::collections::BTreeSet;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tarn_driver::gpus::cdi::Directories;
use tarn_driver::gpus::{SimulatedProbe, Watch};
use tarn_driver::host::Simulated;
use tarn_driver::local::{ImageSettings, LocalDriver, LocalSettings, Protections};
use tarn_driver::{Driver, Error, InstanceSpec, ObservedInstance};
use tarn_link::{Frame, FromGuest, Program, Purpose, Session, opening};
use tarn_model::Ids;
use tarn_model::capacity::{Inventory, Shape};
use tarn_model::ids::{ClusterId, InstanceId};
use tarn_store::testing::ManualClock;

/// The guest that the program under test embeds.
const GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tarn-guest"));

/// As long as anything may take before a test gives up; a busy machine takes many times as long as an idle one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Fresh ids, different in every test.
pub(crate) struct Fresh(AtomicU64);

impl Ids for Fresh {
    fn bits(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

pub(crate) struct Machine {
    pub(crate) driver: LocalDriver,
    pub(crate) ids: Fresh,
    pub(crate) data: tempfile::TempDir,
}

/// Runs a test on a driver of its own and removes whatever it made, also when the test fails.
pub(crate) fn on_a_machine(test: impl AsyncFnOnce(&mut Machine)) {
    on_a_machine_with(async || ((), ImageSettings::default()), async |machine, ()| test(machine).await);
}

/// The same on a driver that has to know something about images, which is found out first.
pub(crate) fn on_a_machine_with<T>(
    prepare: impl AsyncFnOnce() -> (T, ImageSettings),
    test: impl AsyncFnOnce(&mut Machine, T),
) {
    if !rustix_is_root() {
        eprintln!("skipped: the local driver needs root");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let data = tempfile::tempdir().unwrap();
        let (prepared, images) = prepare().await;
        let driver = open_for_images(data.path(), &data.path().join("volumes"), images).await.unwrap();
        let mut machine = Machine { driver, ids: Fresh(AtomicU64::new(u64::from(std::process::id()) << 20)), data };
        let outcome = AssertUnwindSafe(test(&mut machine, prepared)).catch_unwind().await;
        for id in machine.driver.observe().await.unwrap().instances.keys() {
            machine.driver.remove_instance(id).await.unwrap();
        }
        for id in machine.driver.observe().await.unwrap().volumes.keys() {
            machine.driver.remove_volume(id).await.unwrap();
        }
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
        assert_eq!(traces(machine.driver.installation()), Vec::<String>::new(), "nothing is left on the machine");
        assert_eq!(fs::read_dir(machine.data.path().join("instances")).unwrap().count(), 0, "nor on its disk");
        assert_eq!(loops(machine.data.path()), Vec::<String>::new(), "nor a device of something there");
        assert_eq!(names(&machine.data.path().join("volumes")), ["installation"], "nor among the volumes");
    });
}

fn rustix_is_root() -> bool {
    // The owner of a process's own directory in /proc is its effective user.
    std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0
}

pub(crate) async fn open(data: &Path) -> Result<LocalDriver, Error> {
    open_with(data, &data.join("volumes")).await
}

/// Opens a driver that keeps its volumes elsewhere.
pub(crate) async fn open_with(data: &Path, pool: &Path) -> Result<LocalDriver, Error> {
    open_for_images(data, pool, ImageSettings::default()).await
}

/// Opens a driver that knows something about images.
async fn open_for_images(data: &Path, pool: &Path, images: ImageSettings) -> Result<LocalDriver, Error> {
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
        denied: Vec::new(),
        images,
        inventory: Inventory { cpu_milli: 8_000, memory_bytes: 8 << 30, gpus, storage_bytes: 0 },
        gpus: Arc::new(Watch::simulated(probe, Arc::new(ManualClock::default()))),
        cdi: Directories(vec![data.join("cdi")]),
    })
    .await
}

/// Nobody to watch.
pub(crate) fn no_gpus() -> Arc<Watch> {
    Arc::new(Watch::simulated(SimulatedProbe::new(Vec::new(), None), Arc::new(ManualClock::default())))
}

impl Machine {
    /// An instance that is the only one of its cluster.
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
        }
    }

    pub(crate) async fn start(&self, spec: &InstanceSpec) -> ObservedInstance {
        self.ensure(spec).await.unwrap()
    }

    /// Starts an instance, again where the driver says that it may be tried again: other tests make networks, too.
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
        tokio::time::timeout(PATIENCE, ensured).await.expect("the instance starts")
    }

    /// What a command says that works.
    pub(crate) async fn run(&self, id: &InstanceId, command: &str) -> String {
        let (code, output) = self.attempt(id, command).await;
        assert_eq!(code, 0, "{command} works: {output}");
        output
    }

    /// Runs a command as the user and gives its exit code and all that it says.
    pub(crate) async fn attempt(&self, id: &InstanceId, command: &str) -> (u32, String) {
        self.outcome(id, command).await.expect("the session ends with its outcome")
    }

    /// The same; nothing when the guest ended before it told the outcome.
    pub(crate) async fn outcome(&self, id: &InstanceId, command: &str) -> Option<(u32, String)> {
        let talk = async {
            let session = Session { program: Program::Exec(command.into()), ..Session::default() };
            let stream = self.driver.connect(id).await.unwrap();
            let (_, (mut reader, mut writer)) =
                opening::open(stream, Purpose::Session(Box::new(session))).await.unwrap();
            // A command that does not read may have ended by now.
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
        tokio::time::timeout(PATIENCE, talk).await.unwrap_or_else(|_| panic!("{command} does not end"))
    }

    /// Waits until an instance is seen as it should be.
    pub(crate) async fn until(&self, id: &InstanceId, is: impl Fn(&ObservedInstance) -> bool) -> ObservedInstance {
        let seen = async {
            loop {
                let seen = self.driver.observe_instance(id).await.unwrap().unwrap();
                if is(&seen) {
                    return seen;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("the instance is seen as it should be")
    }

    /// The first process of an instance, as the machine numbers it.
    pub(crate) fn init(&self, id: &InstanceId) -> u32 {
        let record = fs::read(self.data.path().join("instances").join(id.as_str()).join("instance.json")).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        u32::try_from(record["process"]["pid"].as_u64().unwrap()).unwrap()
    }
}

/// Everything on the machine that carries an installation's id: control groups, directories, processes, mounts, interfaces
/// and tables. Namespaces live only as long as the processes in them, because nothing else holds them.
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
        // One that is dead has its group until whoever started it has asked how it ended, which is up to him.
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

/// The mounts of the machine that carry an installation's id.
pub(crate) fn mounts(installation: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(installation)).map(str::to_owned).collect()
}

/// The files below a directory that loop devices have.
pub(crate) fn loops(below: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.map(|file| file.trim_end().to_owned()).filter(|file| Path::new(file).starts_with(below)).collect()
}

/// What is in a directory, in order.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
