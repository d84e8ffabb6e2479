//! Nodes that die and volumes that fail while a volume is attached or detached: the request ends soon, reports what is
//! left, and the cluster can be recovered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::{clusters, storage};
use tarn_control::reconcilers;
use tarn_control::runner::faults::{Fault, FaultPoint, Faults};
use tarn_control::testing::ObservingDriver;
use tarn_control::testing::{World, world};
use tarn_driver::{Driver, End};
use tarn_model::Clock;
use tarn_model::ids::{ClusterId, InstanceId, RequestId, VolumeId};
use tarn_model::requests::{Request, RequestStatus};
use tarn_store::testing::DatabaseKind;
use tokio::runtime::Handle;

/// The end of what cannot be done must not take longer; an undo that is abandoned takes a quarter of an hour.
const SOON: Duration = Duration::from_secs(60);

const DAMAGE: &str = "its filesystem is damaged; ask the operator to repair it";

/// A cluster of two nodes, and a volume.
struct Scene {
    world: World,
    cluster: ClusterId,
    volume: VolumeId,
    nodes: Vec<InstanceId>,
}

/// What happens to the host before a step runs for the first time, and how the step itself fails.
struct Meanwhile<F> {
    step: &'static str,
    fault: Fault,
    driver: Arc<ObservingDriver>,
    happened: AtomicBool,
    happens: F,
}

impl<F: AsyncFn(&ObservingDriver) + Send + Sync + 'static> Faults for Meanwhile<F> {
    fn at(&self, at: FaultPoint) -> Fault {
        if at.undo || at.step != self.step || self.happened.swap(true, Ordering::SeqCst) {
            return Fault::None;
        }
        tokio::task::block_in_place(|| Handle::current().block_on((self.happens)(&self.driver)));
        self.fault
    }
}

impl Scene {
    async fn open(database: DatabaseKind) -> Option<Scene> {
        let world = world(database).await?;
        let (cluster, volume) = (world.running("1xCPU", 2).await, world.ready_volume().await);
        let nodes = world.info(&cluster).await.instances.into_iter().map(|node| node.id).collect();
        Some(Scene { world, cluster, volume, nodes })
    }

    async fn attach(&self) -> RequestId {
        let world = &self.world;
        let (volume, cluster) = (self.volume.as_str(), self.cluster.as_str());
        storage::attach(&world.control, &world.caller, volume, cluster, true).await.unwrap().request
    }

    async fn attached(database: DatabaseKind) -> Option<Scene> {
        let scene = Scene::open(database).await?;
        scene.attach().await;
        scene.world.settle().await;
        Some(scene)
    }

    async fn detach(&self, live: bool) -> RequestId {
        let world = &self.world;
        let (volume, cluster) = (self.volume.as_str(), self.cluster.as_str());
        storage::detach(&world.control, &world.caller, volume, cluster, live).await.unwrap().request
    }

    /// Runs `happens` before the step, and expects the request to end soon.
    async fn ended(
        &self,
        request: &RequestId,
        step: &'static str,
        fault: Fault,
        happens: impl AsyncFn(&ObservingDriver) + Send + Sync + 'static,
    ) -> Request {
        let (world, began) = (&self.world, self.world.clock.now());
        let (driver, happened) = (world.driver.clone(), AtomicBool::new(false));
        world.settle_with_faults(Arc::new(Meanwhile { step, fault, driver, happened, happens })).await;
        assert!(world.clock.now() < began.after(SOON), "it took until {}", world.clock.now());
        world.request(request).await.request
    }

    async fn is_attached(&self) -> bool {
        self.world.info(&self.cluster).await.attachment.is_some_and(|held| !held.is_busy())
    }

    async fn state(&self) -> &'static str {
        self.world.info(&self.cluster).await.cluster.state.name()
    }

    /// The nodes on which the volume is mounted.
    async fn mounted(&self) -> Vec<InstanceId> {
        let mut found = Vec::new();
        for node in &self.nodes {
            let seen = self.world.driver.observe_instance(node).await.unwrap();
            if seen.is_some_and(|seen| seen.running && seen.volumes.contains(&self.volume)) {
                found.push(node.clone());
            }
        }
        found
    }

    /// The dead node is reported, and after a restart everything is in order.
    async fn restart(&self) {
        reconcilers::instances::tick(&self.world.control).await.unwrap();
        assert_eq!(self.state().await, "FAILED");
        clusters::restart(&self.world.control, &self.world.caller, self.cluster.as_str()).await.unwrap();
        self.world.settle().await;
        assert_eq!(self.state().await, "RUNNING");
        self.world.assert_agreement("after the restart").await;
    }
}

/// A dead node does not block a live detach.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn dead_node_does_not_block_live_detach(
    #[values("unmount", "confirm")] step: &'static str,
    #[values(false, true)] vanishes: bool,
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(scene) = Scene::attached(database).await else { return };
    let (request, node) = (scene.detach(true).await, scene.nodes[1].clone());
    let dies = async move |driver: &ObservingDriver| {
        if vanishes {
            driver.remove_instance(&node).await.unwrap()
        } else {
            driver.fake.kill(&node, End::Exit).await.unwrap()
        }
    };
    let ended = scene.ended(&request, step, Fault::None, dies).await;
    assert_eq!(ended.status(), RequestStatus::Completed, "{ended:?}");
    assert!(scene.world.info(&scene.cluster).await.attachment.is_none());
    if !vanishes {
        scene.restart().await;
    }
}

/// A dead node does not block the undo of a live detach.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn dead_node_does_not_block_undo_of_live_detach(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(scene) = Scene::attached(database).await else { return };
    let (request, nodes, volume) = (scene.detach(true).await, scene.nodes.clone(), scene.volume.clone());
    let happens = async move |driver: &ObservingDriver| {
        driver.fake.hold(&volume, &nodes[0], "python3").await.unwrap();
        driver.fake.kill(&nodes[1], End::Exit).await.unwrap();
    };
    let ended = scene.ended(&request, "unmount", Fault::None, happens).await;
    assert_eq!(ended.status(), RequestStatus::Failed);
    assert!(ended.message.unwrap().contains("is in use by python3"));
    assert!(scene.is_attached().await);
    assert_eq!(scene.mounted().await, scene.nodes[..1]);
    scene.restart().await;
    assert_eq!(scene.mounted().await, scene.nodes, "what is attached comes back");
}

/// A volume with a fault is not mounted again.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn faulty_volume_is_not_mounted_again(
    #[values(false, true)] live: bool,
    #[values(false, true)] lost: bool,
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(scene) = Scene::attached(database).await else { return };
    let (request, volume) = (scene.detach(live).await, scene.volume.clone());
    let breaks = async move |driver: &ObservingDriver| {
        if lost { driver.fake.lose(&volume).await.unwrap() } else { driver.fake.damage(&volume, DAMAGE).await.unwrap() }
    };
    let ended = scene.ended(&request, "confirm", Fault::Permanent, breaks).await;
    assert_eq!(ended.status(), RequestStatus::Failed);
    let message = ended.message.unwrap();
    assert!(message.starts_with("made to fail for good. The storage could not be mounted again"), "{message}");
    assert!(message.contains(if lost { "the volume is missing" } else { DAMAGE }), "{message}");
    assert!(message.contains("Detach it"), "{message}");
    assert_eq!((scene.state().await, scene.is_attached().await, scene.mounted().await), ("RUNNING", true, vec![]));

    reconcilers::instances::tick(&scene.world.control).await.unwrap();
    let again = scene.detach(live).await;
    scene.world.settle().await;
    assert_eq!(scene.world.request(&again).await.request.status(), RequestStatus::Completed);
    assert_eq!(scene.state().await, "RUNNING");
    scene.world.assert_agreement("after the way out").await;
}

/// A restart mounts the volume that an undo could not mount.
#[tokio::test(flavor = "multi_thread")]
async fn restart_mounts_volume_after_failed_undo() {
    let Some(scene) = Scene::attached(DatabaseKind::Sqlite).await else { return };
    let (request, volume) = (scene.detach(true).await, scene.volume.clone());
    let breaks = async move |driver: &ObservingDriver| driver.fake.damage(&volume, DAMAGE).await.unwrap();
    scene.ended(&request, "confirm", Fault::Permanent, breaks).await;
    reconcilers::instances::tick(&scene.world.control).await.unwrap();
    scene.world.driver.fake.mend(&scene.volume).await.unwrap();
    reconcilers::instances::tick(&scene.world.control).await.unwrap();
    clusters::restart(&scene.world.control, &scene.world.caller, scene.cluster.as_str()).await.unwrap();
    scene.world.settle().await;
    assert_eq!(scene.mounted().await, scene.nodes);
    scene.world.assert_agreement("after the restart").await;
}

/// A dead node makes a live attach fail and undo.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn dead_node_undoes_live_attach(
    #[values("mount", "confirm")] step: &'static str,
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(scene) = Scene::open(database).await else { return };
    let (request, node) = (scene.attach().await, scene.nodes[1].clone());
    let dies = async move |driver: &ObservingDriver| driver.fake.kill(&node, End::Exit).await.unwrap();
    let ended = scene.ended(&request, step, Fault::None, dies).await;
    assert_eq!(ended.status(), RequestStatus::Failed);
    assert!(scene.world.info(&scene.cluster).await.attachment.is_none());
    assert_eq!(scene.mounted().await, []);
    scene.restart().await;
}

/// A volume that processes already use stays attached.
#[tokio::test(flavor = "multi_thread")]
async fn volume_in_use_stays_attached() {
    let Some(scene) = Scene::open(DatabaseKind::Sqlite).await else { return };
    let (request, nodes, volume) = (scene.attach().await, scene.nodes.clone(), scene.volume.clone());
    let happens = async move |driver: &ObservingDriver| {
        driver.fake.hold(&volume, &nodes[0], "python3").await.unwrap();
        driver.fake.kill(&nodes[1], End::Exit).await.unwrap();
    };
    let ended = scene.ended(&request, "confirm", Fault::None, happens).await;
    assert_eq!(ended.status(), RequestStatus::Failed);
    let message = ended.message.unwrap();
    assert!(message.contains("in use by python3") && message.contains("still counts as attached"), "{message}");
    assert!(scene.is_attached().await);
    assert_eq!(scene.mounted().await, scene.nodes[..1]);
    scene.restart().await;
    let detached = scene.detach(true).await;
    scene.world.settle().await;
    assert_eq!(scene.world.request(&detached).await.request.status(), RequestStatus::Completed);
    scene.world.assert_agreement("after the detach").await;
}
