//! GPUs that are missing, or not there yet: claims keep waiting for them, and they stay listed.

use std::sync::{Arc, Mutex};

use tarn_control::operations::clusters;
use tarn_control::operations::host::{self, GpuSummary};
use tarn_control::testing::{World, world};
use tarn_control::{Kind, Settings, reconcilers};
use tarn_driver::gpus::{Probe, Reading, Readings, Watch};
use tarn_store::testing::DatabaseKind;

/// Real GPUs, from the point of view of the engine.
#[derive(Clone, Default)]
struct Installed(Arc<Mutex<Readings>>);

impl Probe for Installed {
    fn read(&mut self) -> Readings {
        self.0.lock().unwrap().clone()
    }
}

impl Installed {
    /// From now on these GPUs respond. `is_complete` says whether it is known that there are no others.
    fn set(&self, numbers: &[u32], is_complete: bool) {
        let gpu = |n: &u32| Reading { id: format!("GPU-{n}"), name: "NVIDIA H100".into(), ..Reading::default() };
        *self.0.lock().unwrap() = Readings { gpus: numbers.iter().map(gpu).collect(), is_complete };
    }

    fn watch(&self, world: &World) -> Arc<Watch> {
        let watch = Arc::new(Watch::real(self.clone(), world.clock.clone()));
        watch.look(|_, _| true);
        watch
    }
}

/// An engine with four real GPUs.
async fn four() -> Option<(World, Installed)> {
    let (world, installed) = (world(DatabaseKind::Sqlite).await?, Installed::default());
    installed.set(&[0, 1, 2, 3], true);
    let watch = installed.watch(&world);
    Some((world.started_with(watch, 21).await, installed))
}

async fn observe_gpus(world: &World) {
    reconcilers::gpus::tick(&world.control).await.unwrap();
    world.settle().await;
}

async fn listed(world: &World) -> Vec<GpuSummary> {
    host::list_gpus(&world.control, &world.caller).await.unwrap()
}

async fn healths(world: &World) -> Vec<(String, &'static str)> {
    listed(world).await.into_iter().map(|gpu| (gpu.known.gpu.id, gpu.known.health.name())).collect()
}

/// GPUs that appear after the engine are waited for.
#[tokio::test(flavor = "multi_thread")]
async fn late_gpus_are_waited_for() {
    let Some((world, installed)) = four().await else { return };
    let owner = world.running("1xH100", 1).await;
    let (waits, _) = world.create("4xH100", 1).await;
    world.settle().await;

    installed.set(&[], false);
    let watch = installed.watch(&world);
    let world = world.started_with(watch, 22).await;
    world.settle().await;
    assert!(healths(&world).await.iter().all(|(_, health)| *health == "BAD") && listed(&world).await.len() == 4);
    let view = world.info(&waits).await;
    assert_eq!(view.cluster.state.name(), "PENDING", "{:?}", view.explanation);
    let explained = view.explanation.unwrap();
    assert!(explained.contains("it does not respond"), "{explained}");
    let (another, _) = world.create("1xH100", 1).await;
    clusters::destroy(&world.control, &world.caller, owner.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(world.info(&another).await.cluster.state.name(), "PENDING", "what is known can still be asked for");

    installed.set(&[0, 1, 2, 3], true);
    observe_gpus(&world).await;
    world.wait(Settings::default().gpu_recovery).await;
    observe_gpus(&world).await;
    assert_eq!(world.info(&waits).await.cluster.state.name(), "RUNNING", "without an operator");
}

/// An error that passes makes no GPU fatal.
#[tokio::test(flavor = "multi_thread")]
async fn passing_error_is_not_fatal() {
    let Some((world, installed)) = four().await else { return };
    installed.set(&[0, 2], false);
    observe_gpus(&world).await;
    let now = healths(&world).await;
    let expected = [("GPU-0", "GOOD"), ("GPU-2", "GOOD"), ("GPU-1", "BAD"), ("GPU-3", "BAD")];
    assert_eq!(now, expected.map(|(id, health)| (id.to_owned(), health)));
    installed.set(&[0, 1, 2, 3], true);
    observe_gpus(&world).await;
    world.wait(Settings::default().gpu_recovery).await;
    observe_gpus(&world).await;
    assert!(healths(&world).await.iter().all(|(_, health)| *health == "GOOD"));
}

/// A GPU that is gone after a restart is listed until it is cleared.
#[tokio::test(flavor = "multi_thread")]
async fn lost_gpu_is_listed_until_cleared() {
    let Some((world, installed)) = four().await else { return };
    let owner = world.running("1xH100", 1).await;
    assert_eq!(world.info(&owner).await.instances[0].gpus, ["GPU-0"]);
    installed.set(&[1, 2], true);
    let watch = installed.watch(&world);
    let world = world.started_with(watch, 23).await;
    world.settle().await;
    let lost = |all: Vec<(String, &'static str)>| -> Vec<String> {
        all.into_iter().filter(|(_, health)| *health == "FATAL").map(|(id, _)| id).collect()
    };
    assert_eq!(lost(healths(&world).await), ["GPU-0", "GPU-3"]);
    let (waits, _) = world.create("4xH100", 1).await;
    world.settle().await;
    assert_eq!(world.info(&waits).await.cluster.state.name(), "PENDING", "it counts as installed");

    let (control, caller) = (&world.control, &world.caller);
    let said = host::clear_gpu(control, caller, "GPU-3").await.unwrap();
    assert!(said.contains("was removed"), "{said}");
    let unknown = host::clear_gpu(control, caller, "GPU-3").await.unwrap_err();
    assert_eq!(unknown.kind, Kind::NotFound);
    observe_gpus(&world).await;
    assert_eq!((lost(healths(&world).await), listed(&world).await.len()), (vec!["GPU-0".to_owned()], 3));
    host::clear_gpu(control, caller, "GPU-0").await.unwrap();
    observe_gpus(&world).await;
    assert_eq!(lost(healths(&world).await), ["GPU-0"], "the owner of a lost GPU is informed until it is released");
    installed.set(&[1, 2, 3], true);
    observe_gpus(&world).await;
    assert_eq!(listed(&world).await.len(), 4, "what comes back is there again");
}

/// A GPU that does not respond stays listed.
#[tokio::test(flavor = "multi_thread")]
async fn silent_gpu_stays_listed() {
    let Some((world, installed)) = four().await else { return };
    let (control, caller) = (&world.control, &world.caller);
    installed.set(&[0, 1, 2], true);
    observe_gpus(&world).await;
    host::drain_gpu(control, caller, "GPU-3", Some(host::DrainReason(None))).await.unwrap();
    installed.set(&[], false);
    observe_gpus(&world).await;
    host::clear_gpu(control, caller, "GPU-3").await.unwrap();
    installed.set(&[0, 1, 2, 3], true);
    observe_gpus(&world).await;
    let known = listed(&world).await.into_iter().find(|gpu| gpu.known.gpu.id == "GPU-3").unwrap().known;
    assert_eq!((known.health.name(), known.drain.is_some()), ("RECOVERING", true), "it was only not seen");
}

/// The engine starts with a GPU that hangs at the first look: only the database knows the GPUs.
#[tokio::test(flavor = "multi_thread")]
async fn engine_starts_with_hanging_gpu() {
    let Some((world, _)) = four().await else { return };
    struct Hangs(std::sync::mpsc::Receiver<()>, std::sync::mpsc::Sender<()>);
    impl Probe for Hangs {
        fn read(&mut self) -> Readings {
            self.1.send(()).unwrap();
            let _ = self.0.recv();
            Readings::default()
        }
    }
    let ((end, ended), (hang, hangs)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let watch = Arc::new(Watch::real(Hangs(ended, hang), world.clock.clone()));
    let looking = watch.clone();
    let thread = std::thread::spawn(move || looking.look(|_, _| true));
    hangs.recv().unwrap();
    let world = world.started_with(watch, 24).await;
    assert!(healths(&world).await.iter().all(|(_, health)| *health == "BAD") && listed(&world).await.len() == 4);
    world.running("1xCPU", 1).await;
    drop(end);
    thread.join().unwrap();
}
