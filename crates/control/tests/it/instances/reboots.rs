//! The host is rebooted: everything that ran ends at once and comes back by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::{clusters, storage};
use tarn_control::reconcilers::{self, reboots};
use tarn_control::runner::Runner;
use tarn_control::runner::faults::{Fault, FaultPoint, Faults};
use tarn_control::testing::ObservingDriver;
use tarn_control::testing::{World, world};
use tarn_control::{AfterReboot, Settings};
use tarn_driver::{Driver, End};
use tarn_model::ids::{ClusterId, RequestId};
use tarn_model::requests::RequestStatus;
use tarn_model::{Clock, Time};
use tarn_store::testing::DatabaseKind;
use tokio::runtime::Handle;

const HOUR: Duration = Duration::from_secs(3600);

/// What the engine does first when it starts.
async fn begin(world: &World) {
    reboots::extend_deadlines(&world.control).await.unwrap();
    reboots::recover(&world.control).await.unwrap();
}

/// Reboots the host and starts the engine.
async fn come_up(world: &World) {
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

async fn state(world: &World, cluster: &ClusterId) -> &'static str {
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

async fn status(world: &World, request: &RequestId) -> RequestStatus {
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

/// A long downtime does not fail open requests.
#[tokio::test(flavor = "multi_thread")]
async fn long_downtime_fails_no_request() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    begin(&world).await;
    let cluster = world.running("1xCPU", 1).await;
    let request = clusters::restart(&world.control, &world.caller, cluster.as_str()).await.unwrap().request;
    world.wait(72 * HOUR).await;
    come_up(&world).await;
    world.settle().await;
    assert_eq!((status(&world, &request).await, state(&world, &cluster).await), (RequestStatus::Completed, "RUNNING"));
}

/// The undo fails before the host goes down.
struct CannotUndo;

impl Faults for CannotUndo {
    fn at(&self, at: FaultPoint) -> Fault {
        match (at.step, at.undo) {
            ("configure", false) => Fault::Permanent,
            ("provision", true) => Fault::Crash,
            _ => Fault::None,
        }
    }
}

/// An undo continues after a long downtime.
#[tokio::test(flavor = "multi_thread")]
async fn undo_continues_after_long_downtime() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    begin(&world).await;
    let (cluster, request) = world.create("1xH100", 1).await;
    Runner::with_faults(world.control.clone(), Arc::new(CannotUndo)).tick().await.unwrap();
    assert!(world.request(&request).await.request.progress.failure().is_some(), "it is being undone");
    world.wait(HOUR).await;
    come_up(&world).await;
    world.settle().await;
    let ended = world.request(&request).await.request;
    assert_eq!(ended.status(), RequestStatus::Failed);
    let message = ended.message.unwrap();
    assert!(message.contains("made to fail for good") && !message.contains("failed as well"), "{message}");
    assert_eq!(state(&world, &cluster).await, "FAILED");
    assert!(world.driver.observe().await.unwrap().instances.is_empty(), "nothing is left of it");
}

/// Without a reboot of the host, an undo ends at its deadline.
#[tokio::test(flavor = "multi_thread")]
async fn undo_ends_at_its_deadline_without_reboot() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    begin(&world).await;
    let (_, request) = world.create("1xH100", 1).await;
    Runner::with_faults(world.control.clone(), Arc::new(CannotUndo)).tick().await.unwrap();
    world.wait(HOUR).await;
    begin(&world).await;
    world.settle().await;
    let message = world.request(&request).await.request.message.unwrap();
    assert!(message.contains("failed as well"), "{message}");
}

/// Each request gets the time of its current step.
#[tokio::test(flavor = "multi_thread")]
async fn each_request_gets_the_time_of_its_step() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    begin(&world).await;
    let settings = Settings::default();
    world.running("4xH100", 1).await;
    let (_, pulls) = world.create_of("1xCPU", 1, Some("app")).await;
    let crash = Arc::new(CrashesAt("pull"));
    Runner::with_faults(world.control.clone(), crash).tick().await.unwrap();
    let (_, works) = world.create("1xCPU", 1).await;
    Runner::with_faults(world.control.clone(), Arc::new(CrashesAt("configure"))).tick().await.unwrap();
    // The last one in the queue, so that no claim waits behind it.
    let (_, waits) = world.create("8xH100", 1).await;
    world.wait(48 * HOUR).await;
    come_up(&world).await;
    for (request, time) in
        [(&waits, settings.capacity_deadline), (&pulls, settings.image_pull_deadline), (&works, settings.work_deadline)]
    {
        let found = world.request(request).await.request;
        assert_eq!(left(&world, found.deadline), time.as_secs(), "{found:?}");
    }
    world.settle().await;
    assert_eq!(status(&world, &waits).await, RequestStatus::Pending);
    assert_eq!(status(&world, &pulls).await, RequestStatus::Completed);
    assert_eq!(status(&world, &works).await, RequestStatus::Completed);
}

/// How many seconds are left until then. Each read of the clock advances it a little.
fn left(world: &World, until: Time) -> u64 {
    until.until(world.clock.now()).as_secs_f64().round() as u64
}

/// The engine dies in a step whenever it runs it.
struct CrashesAt(&'static str);

impl Faults for CrashesAt {
    fn at(&self, at: FaultPoint) -> Fault {
        if at.step == self.0 && !at.undo { Fault::Crash } else { Fault::None }
    }
}

/// Deadlines are extended once per boot, even if the host cannot be observed.
#[tokio::test(flavor = "multi_thread")]
async fn deadlines_are_extended_once_per_boot() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    begin(&world).await;
    let (_, request) = world.create("1xCPU", 1).await;
    Runner::with_faults(world.control.clone(), Arc::new(CrashesAt("provision"))).tick().await.unwrap();
    world.wait(HOUR).await;
    world.driver.fake.reboot().await.unwrap();
    world.driver.observe_fails.store(true, Ordering::SeqCst);
    reboots::extend_deadlines(&world.control).await.unwrap();
    let until = world.request(&request).await.request.deadline;
    assert_eq!(left(&world, until), Settings::default().work_deadline.as_secs(), "before anything is looked at");
    for _ in 0..3 {
        world.wait(Settings::default().instances_every).await;
        reboots::extend_deadlines(&world.control).await.unwrap();
        assert!(reboots::recover(&world.control).await.is_err());
    }
    assert_eq!(world.request(&request).await.request.deadline, until, "not again and again");
    world.driver.observe_fails.store(false, Ordering::SeqCst);
    world.settle().await;
    reboots::recover(&world.control).await.unwrap();
    let events = &world.events("machine.rebooted").await[0].detail;
    assert_eq!(events["requests_resumed"], 1, "what was open when the host came up, {events}");
}

/// Every open request gets its time again, however many there are.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn deadlines_of_many_requests_are_extended(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    begin(&world).await;
    let mut all = Vec::new();
    for _ in 0..205 {
        all.push(world.create("1xCPU", 1).await.1);
    }
    world.wait(HOUR).await;
    world.driver.fake.reboot().await.unwrap();
    reboots::extend_deadlines(&world.control).await.unwrap();
    let Settings { work_deadline, capacity_deadline, .. } = Settings::default();
    let whole = [work_deadline, capacity_deadline].map(|span| span.as_secs());
    for request in &all {
        let until = world.request(request).await.request.deadline;
        assert!(whole.contains(&left(&world, until)), "{}", left(&world, until));
    }
    reboots::recover(&world.control).await.unwrap();
    assert_eq!(world.events("machine.rebooted").await[0].detail["requests_resumed"], 205);
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
