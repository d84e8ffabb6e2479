//! The host is rebooted: everything that ran ends at once and comes back by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::{clusters, storage};
use tarn_control::reconcilers::{self, reboots};
use tarn_control::runner::faults::{Fault, FaultPoint, Faults};
use tarn_control::testing::ObservingDriver;
use tarn_control::testing::{World, world};
use tarn_control::{AfterReboot, Settings};
use tarn_driver::{Driver, End};
use tarn_model::ids::{ClusterId, RequestId};
use tarn_model::requests::RequestStatus;
use tarn_store::testing::DatabaseKind;
use tokio::runtime::Handle;

pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// What the engine does first when it starts.
pub(super) async fn begin(world: &World) {
    reboots::extend_deadlines(&world.control).await.unwrap();
    reboots::recover(&world.control).await.unwrap();
}

/// Reboots the host and starts the engine.
pub(super) async fn come_up(world: &World) {
    world.driver.fake.reboot().await.unwrap();
    begin(world).await;
}

/// Lets all clusters come back, one admission after the other.
async fn settle(world: &World) {
    for _ in 0..20 {
        world.settle().await;
        reconcilers::instances::tick(&world.control).await.unwrap();
    }
    world.settle().await;
}

pub(super) async fn state(world: &World, cluster: &ClusterId) -> &'static str {
    world.info(cluster).await.cluster.state.name()
}

/// Reboots the host when a step is about to run for the first time, or right after its action.
struct GoesDown {
    step: &'static str,
    fault: Fault,
    driver: Arc<ObservingDriver>,
    happened: AtomicBool,
}

impl Faults for GoesDown {
    fn at(&self, at: FaultPoint) -> Fault {
        if at.undo || at.step != self.step || self.happened.swap(true, Ordering::SeqCst) {
            return Fault::None;
        }
        tokio::task::block_in_place(|| Handle::current().block_on(self.driver.fake.reboot())).unwrap();
        self.fault
    }
}

async fn goes_down(world: &World, step: &'static str) {
    let (driver, happened) = (world.driver.clone(), AtomicBool::new(false));
    let faults = Arc::new(GoesDown { step, fault: Fault::None, driver, happened });
    world.settle_with_faults(faults.clone()).await;
    assert!(faults.happened.load(Ordering::SeqCst), "nothing came to {step}");
}

pub(super) async fn status(world: &World, request: &RequestId) -> RequestStatus {
    world.request(request).await.request.status()
}

/// Clusters that ran come back after a reboot of the host.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn running_clusters_come_back(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    begin(&world).await;
    assert!(world.events("machine.rebooted").await.is_empty(), "the first start is no reboot");
    let (cluster, volume) = (world.running("1xH100", 2).await, world.ready_volume().await);
    storage::attach(&world.control, &world.caller, volume.as_str(), cluster.as_str(), true).await.unwrap();
    world.settle().await;
    let before = world.info(&cluster).await;

    come_up(&world).await;
    let view = world.info(&cluster).await;
    assert_eq!(view.cluster.state.name(), "RESTARTING");
    let explained = view.explanation.unwrap();
    assert!(explained.starts_with("The host was rebooted (noticed at "), "{explained}");
    let events = world.events("machine.rebooted").await;
    assert_eq!((events.len(), &events[0].detail["clusters_coming_back"]), (1, &1.into()), "{events:?}");
    settle(&world).await;

    let after = world.info(&cluster).await;
    assert_eq!((after.cluster.state.name(), after.explanation), ("RUNNING", None));
    let places = |view: &[tarn_model::clusters::Instance]| {
        view.iter().map(|node| (node.id.clone(), node.private_ip.clone(), node.gpus.clone())).collect::<Vec<_>>()
    };
    assert_eq!(places(&after.instances), places(&before.instances));
    world.assert_agreement("after the reboot of the host").await;
    let request = clusters::operations(&world.control, &world.caller, cluster.as_str(), None, None).await.unwrap();
    let message = request[0].request.message.clone().unwrap();
    assert!(message.starts_with("The cluster is running again. The host was rebooted"), "{message}");
    begin(&world).await;
    assert_eq!(world.events("machine.rebooted").await.len(), 1, "one reboot is recorded once");
    assert!(world.events("instance.died").await.is_empty() && world.events("cluster.failed").await.is_empty());
}

/// Clusters come back a few at a time, and all of them in the end.
#[tokio::test(flavor = "multi_thread")]
async fn clusters_come_back_a_few_at_a_time() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    begin(&world).await;
    let mut all = Vec::new();
    for _ in 0..7 {
        all.push(world.running("1xH100", 1).await);
    }
    come_up(&world).await;
    world.settle().await;
    let mut running = 0;
    for cluster in &all {
        let view = world.info(cluster).await;
        match view.cluster.state.name() {
            "RUNNING" => running += 1,
            _ => assert!(view.explanation.unwrap().contains("waits for its turn")),
        }
    }
    assert_eq!(running, 4);
    settle(&world).await;
    for cluster in &all {
        assert_eq!(state(&world, cluster).await, "RUNNING");
    }
    world.assert_agreement("after all came back").await;
}

/// The operator may leave the clusters stopped.
#[tokio::test(flavor = "multi_thread")]
async fn operator_may_leave_clusters_stopped() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let world = world.with_settings(Settings { after_reboot: AfterReboot::Leave, ..Settings::default() });
    begin(&world).await;
    let cluster = world.running("1xCPU", 1).await;
    come_up(&world).await;
    let view = world.info(&cluster).await;
    let explained = view.explanation.unwrap();
    assert!(view.cluster.has_failed() && explained.contains("because the host was restarted"), "{explained}");
    assert_eq!(world.events("machine.rebooted").await[0].detail["clusters_failed"], 1);
    clusters::restart(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(state(&world, &cluster).await, "RUNNING");
}

/// A lost volume or disk fails only its own cluster.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn lost_volume_or_disk_fails_only_its_cluster(#[values(false, true)] disk: bool) {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    begin(&world).await;
    let (cluster, other, volume) =
        (world.running("1xCPU", 1).await, world.running("1xCPU", 1).await, world.ready_volume().await);
    storage::attach(&world.control, &world.caller, volume.as_str(), cluster.as_str(), true).await.unwrap();
    world.settle().await;
    let node = world.info(&cluster).await.instances[0].id.clone();
    world.driver.fake.reboot().await.unwrap();
    if disk {
        world.driver.fake.kill(&node, End::DiskMissing).await.unwrap()
    } else {
        world.driver.fake.lose(&volume).await.unwrap()
    }
    begin(&world).await;
    settle(&world).await;
    let view = world.info(&cluster).await;
    let explained = view.explanation.unwrap();
    assert!(view.cluster.has_failed(), "{explained}");
    assert!(explained.contains(if disk { "has lost its disk" } else { volume.as_str() }), "{explained}");
    assert_eq!(state(&world, &other).await, "RUNNING");
    let events = world.events("machine.rebooted").await;
    let lost = if disk { "disks_missing" } else { "volumes_lost" };
    assert_eq!(
        (&events[0].detail[lost], &events[0].detail["clusters_coming_back"]),
        (&1.into(), &1.into()),
        "{events:?}"
    );
    if !disk {
        world.driver.fake.mend(&volume).await.unwrap();
        reconcilers::instances::tick(&world.control).await.unwrap();
        clusters::restart(&world.control, &world.caller, cluster.as_str()).await.unwrap();
        world.settle().await;
        assert_eq!(state(&world, &cluster).await, "RUNNING");
    }
}

/// A claim continues after a reboot.
#[rstest]
#[case("provision")]
#[case("configure")]
#[case("confirm")]
#[tokio::test(flavor = "multi_thread")]
async fn claim_continues(#[case] step: &'static str) {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (cluster, request) = world.create("1xH100", 2).await;
    goes_down(&world, step).await;
    assert_eq!((status(&world, &request).await, state(&world, &cluster).await), (RequestStatus::Completed, "RUNNING"));
    world.assert_agreement("after the claim").await;
}

/// A restart continues after a reboot.
#[rstest]
#[case("restart")]
#[case("confirm")]
#[tokio::test(flavor = "multi_thread")]
async fn restart_continues(#[case] step: &'static str) {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 2).await;
    let request = clusters::restart(&world.control, &world.caller, cluster.as_str()).await.unwrap().request;
    goes_down(&world, step).await;
    assert_eq!((status(&world, &request).await, state(&world, &cluster).await), (RequestStatus::Completed, "RUNNING"));
    world.assert_agreement("after the restart").await;
}

/// Attaching and detaching continue after a reboot.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn attach_and_detach_continue(
    #[values("mount", "restart", "confirm", "unmount")] step: &'static str,
    #[values(false, true)] live: bool,
    #[values(false, true)] detaches: bool,
) {
    if (step == "mount" && detaches) || (step == "unmount" && !detaches) {
        return;
    }
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (cluster, volume) = (world.running("1xCPU", 2).await, world.ready_volume().await);
    let (control, caller) = (&world.control, &world.caller);
    let mut request = storage::attach(control, caller, volume.as_str(), cluster.as_str(), live).await.unwrap().request;
    if detaches {
        world.settle().await;
        request = storage::detach(control, caller, volume.as_str(), cluster.as_str(), live).await.unwrap().request;
    }
    goes_down(&world, step).await;
    assert_eq!(status(&world, &request).await, RequestStatus::Completed);
    settle(&world).await;
    assert_eq!(state(&world, &cluster).await, "RUNNING");
    world.assert_agreement("after it went on").await;
}

/// A destruction continues after a reboot.
#[tokio::test(flavor = "multi_thread")]
async fn destruction_continues() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 2).await;
    let request = clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap().request;
    goes_down(&world, "end jobs").await;
    assert_eq!(
        (status(&world, &request).await, state(&world, &cluster).await),
        (RequestStatus::Completed, "DESTROYED")
    );
    assert!(world.driver.observe().await.unwrap().instances.is_empty());
}

/// A cluster that waits for its restart can be destroyed.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_cluster_can_be_destroyed() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    begin(&world).await;
    let mut all = Vec::new();
    for _ in 0..6 {
        all.push(world.running("1xH100", 1).await);
    }
    come_up(&world).await;
    // The admitted clusters come back, and the others are not admitted.
    world.settle().await;
    let mut destroyed = 0;
    for cluster in all {
        if state(&world, &cluster).await == "RUNNING" {
            continue;
        }
        assert_eq!(state(&world, &cluster).await, "RESTARTING");
        clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
        world.settle().await;
        assert_eq!(state(&world, &cluster).await, "DESTROYED");
        let asked = clusters::operations(&world.control, &world.caller, cluster.as_str(), None, None).await.unwrap();
        let ended: Vec<_> = asked.iter().map(|view| view.request.status()).take(2).collect();
        assert_eq!(ended, [RequestStatus::Completed, RequestStatus::Failed], "{asked:?}");
        destroyed += 1;
    }
    assert_eq!(destroyed, 2);
    settle(&world).await;
    world.assert_agreement("after some were destroyed").await;
}
