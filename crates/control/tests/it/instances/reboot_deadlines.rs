//! The deadlines of requests when the host is rebooted: the time in which it was down does not count.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rstest::rstest;
use tarn_control::Settings;
use tarn_control::operations::clusters;
use tarn_control::reconcilers::reboots;
use tarn_control::runner::Runner;
use tarn_control::runner::faults::{Fault, FaultPoint, Faults};
use tarn_control::testing::{World, world};
use tarn_driver::Driver;
use tarn_model::requests::RequestStatus;
use tarn_model::{Clock, Time};
use tarn_store::testing::DatabaseKind;

use super::reboots::{HOUR, begin, come_up, state, status};

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
