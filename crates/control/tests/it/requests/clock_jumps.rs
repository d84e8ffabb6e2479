//! A jump of the host's clock makes nothing late or early, and the times that users see become right again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::clusters::{self, NewCluster};
use tarn_control::reconcilers::clock::{self, ClockWatch};
use tarn_control::testing::{World, world};
use tarn_control::{Caller, Idempotency, Settings, reconcilers};
use tarn_model::clock_jumps::Reading;
use tarn_model::requests::RequestStatus;
use tarn_model::testing::ManualClock;
use tarn_model::{Clock, Time, Timekeeper};
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, requests};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// A world whose clock agrees with the database server's, and the watch of an engine that has started.
async fn start(database: DatabaseKind) -> Option<(World, ClockWatch)> {
    let world = world(database).await?;
    agree_with_server(&world, &world.clock).await;
    let watch = clock::resume(&world.store, world.clock.clone()).await.unwrap();
    Some((world, watch))
}

async fn agree_with_server(world: &World, clock: &ManualClock) {
    if let Some(server) = tarn_store::clock::server_time(&world.store).await.unwrap() {
        clock.set_back(clock.now().until(server));
        clock.move_to(server);
    }
}

/// Compares the clocks until a jump is followed. On PostgreSQL the test says that the server's clock jumped as well.
async fn follow(world: &World, watch: &mut ClockWatch, clock: &ManualClock) {
    let is_shared = world.store.generation().is_none();
    for _ in 0..3 {
        let set = clock.read().set;
        watch.compare(&world.control, is_shared.then_some(set), set).await.unwrap();
    }
}

async fn jumps(world: &World) -> usize {
    world.store.read(tarn_store::clock::anchor).await.unwrap().jumps().len()
}

fn once(caller: &Caller) -> Caller {
    Caller { idempotency: Some(Idempotency { key: "k".into(), fingerprint: [1; 32], seal: [9; 32] }), ..caller.clone() }
}

/// After a jump a claim waits exactly as long as before it, and a repeated call is recognized.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn waiting_claim_outlives_jump_forward(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(DAY, 400 * DAY)] by: i64,
) {
    let Some((world, mut watch)) = start(database).await else { return };
    world.running("8xH100", 1).await;
    let (cluster, request) = world.create("8xH100", 1).await;
    world.settle().await;
    let new = || NewCluster { instance_type: "8xH100".into(), ..Default::default() };
    let called = clusters::create(&world.control, &once(&world.caller), new()).await.unwrap();
    world.settle().await;

    world.clock.jump(by);
    follow(&world, &mut watch, &world.clock).await;
    assert!(world.clock.read().ahead_us().abs() < SECOND, "the time is right again");
    world.settle().await;
    let waiting = world.request(&request).await.request;
    assert_eq!(waiting.status(), RequestStatus::Pending, "{:?}", waiting.message);
    let left = waiting.deadline.until(world.clock.now());
    let whole = Settings::default().capacity_deadline;
    assert!(left < whole && left > whole - Duration::from_secs(3600), "{left:?}");
    let again = clusters::create(&world.control, &once(&world.caller), new()).await.unwrap();
    assert_eq!(again, called, "the repeated call is recognized");
    assert_eq!((jumps(&world).await, world.events("clock.jumped").await.len()), (1, 1));

    world.wait(left + Duration::from_secs(1)).await;
    world.settle().await;
    let ended = world.request(&request).await.request;
    assert_eq!(ended.status(), RequestStatus::Failed, "time that passes counts");
    assert_eq!(
        clusters::info(&world.control, &world.caller, cluster.as_str()).await.unwrap().cluster.state.name(),
        "FAILED"
    );
}

/// A runner loses the request that it works on, because it has the old deadline in memory, and no runner waits for
/// a lease that a jump has made long.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn jump_ends_leases(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(DAY, -DAY)] by: i64,
) {
    let Some((world, mut watch)) = start(database).await else { return };
    let (_, id) = world.create("1xCPU", 1).await;
    let lease = Settings::default().lease;
    let leased = world.store.write(move |tx| requests::lease_due(tx, lease, 1)).await.unwrap().remove(0);
    let whole = leased.deadline.until(world.clock.now());
    world.clock.jump(by);
    follow(&world, &mut watch, &world.clock).await;
    let is_shared = database == DatabaseKind::Postgres;
    if by > 0 || !is_shared {
        let stale = leased.clone();
        let refused = world.store.write(move |tx| requests::save(tx, &stale)).await.unwrap_err();
        assert!(matches!(refused, Error::Conflict), "{refused:?}");
    }
    world.wait(lease + Duration::from_secs(1)).await;
    let again = world.store.write(move |tx| requests::lease_due(tx, lease, 1)).await.unwrap();
    assert_eq!(again.iter().map(|request| &request.id).collect::<Vec<_>>(), [&id]);
    let left = again[0].deadline.until(world.clock.now());
    assert!(left + Duration::from_secs(60) > whole, "{left:?} of {whole:?}");
    assert!(left < whole || is_shared && by < 0, "{left:?} of {whole:?}");
}

/// The clock was set while no engine ran: what passed counts, and then the time follows.
#[tokio::test(flavor = "multi_thread")]
async fn jump_while_stopped_is_noticed() {
    let Some((world, watch)) = start(DatabaseKind::Sqlite).await else { return };
    world.running("8xH100", 1).await;
    let (_, request) = world.create("8xH100", 1).await;
    world.settle().await;
    drop(watch);
    for by in [DAY, -2 * DAY] {
        let before = world.clock.now();
        world.wait(Duration::from_secs(600)).await;
        world.clock.jump(by);
        // A program that starts begins with the clock of the host.
        world.clock.shift(by);
        let mut watch = clock::resume(&world.store, world.clock.clone()).await.unwrap();
        let passed = world.clock.now().until(before);
        assert!((600..700).contains(&passed.as_secs()), "{passed:?}");
        world.settle().await;
        assert_eq!(world.request(&request).await.request.status(), RequestStatus::Pending);
        follow(&world, &mut watch, &world.clock).await;
        assert!(world.clock.read().ahead_us().abs() < SECOND);
        world.settle().await;
        assert_eq!(world.request(&request).await.request.status(), RequestStatus::Pending);
    }
}

/// Of several replicas one moves the deadlines. A replica whose own clock is wrong follows neither.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_follow_jump_once() {
    let Some((world, mut first)) = start(DatabaseKind::Postgres).await else { return };
    let other = Arc::new(ManualClock::default());
    agree_with_server(&world, &other).await;
    let mut second = clock::resume(&world.store, other.clone()).await.unwrap();
    other.jump(DAY);
    for _ in 0..3 {
        let (server, set) = (other.read().now, other.read().set);
        second.compare(&world.control, Some(server), set).await.unwrap();
    }
    assert_eq!((jumps(&world).await, other.read().ahead_us() > DAY / 2), (0, true), "the server says that it is wrong");

    world.running("8xH100", 1).await;
    let (_, request) = world.create("8xH100", 1).await;
    world.settle().await;
    world.clock.jump(DAY);
    follow(&world, &mut first, &world.clock).await;
    let deadline = world.request(&request).await.request.deadline;
    follow(&world, &mut second, &other).await;
    assert_eq!(world.request(&request).await.request.deadline, deadline, "it moved once");
    assert!(other.read().ahead_us().abs() < SECOND, "the other replica follows as well");
    assert_eq!(jumps(&world).await, 1);
}

/// A database server that needs seconds for its answer does not change the time of an engine that starts.
#[tokio::test(flavor = "multi_thread")]
async fn late_answer_of_server_is_no_jump() {
    let Some((world, _)) = start(DatabaseKind::Postgres).await else { return };
    let late = Arc::new(LateClock { clock: ManualClock::default(), reads: AtomicU32::new(0) });
    agree_with_server(&world, &late.clock).await;
    late.clock.set_back(Duration::from_secs(6));
    clock::resume(&world.store, late.clone()).await.unwrap();
    assert_eq!((late.clock.read().ahead_us(), jumps(&world).await), (0, 0));
}

/// A clock of which six seconds pass before it is read for the second time.
struct LateClock {
    clock: ManualClock,
    reads: AtomicU32,
}

impl Clock for LateClock {
    fn now(&self) -> Time {
        self.clock.now()
    }
}

impl Timekeeper for LateClock {
    fn read(&self) -> Reading {
        if self.reads.fetch_add(1, Ordering::SeqCst) == 1 {
            self.clock.advance(Duration::from_secs(6));
        }
        self.clock.read()
    }

    fn shift(&self, by_us: i64) {
        self.clock.shift(by_us);
    }
}

/// What is kept for thirty days is not removed by a jump.
#[tokio::test(flavor = "multi_thread")]
async fn jump_removes_nothing() {
    let Some((world, mut watch)) = start(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    world.clock.jump(40 * DAY);
    follow(&world, &mut watch, &world.clock).await;
    let is_known = async |watch: &mut ClockWatch| {
        // It stores the time.
        follow(&world, watch, &world.clock).await;
        reconcilers::expiry::tick(&world.control).await.unwrap();
        clusters::info(&world.control, &world.caller, cluster.as_str()).await.is_ok()
    };
    assert!(is_known(&mut watch).await);
    world.wait(Duration::from_secs(29 * 86_400)).await;
    assert!(is_known(&mut watch).await);
    world.wait(Duration::from_secs(2 * 86_400)).await;
    assert!(!is_known(&mut watch).await, "days that pass count");
}
