//! Leases have one holder at a time, and a former holder can write nothing.

use std::time::Duration;

use rstest::rstest;
use tarn_model::Time;
use tarn_model::ids::RequestId;
use tarn_model::requests::{Request, RequestStatus, RequestType};
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, requests};

use crate::support::{World, cluster, world};

const LEASE: Duration = Duration::from_secs(10);

fn request(world: &World, due: i64, waiting: bool) -> Request {
    Request {
        id: RequestId::fresh(&*world.ids),
        kind: RequestType::ClusterClaim,
        status: RequestStatus::Pending,
        owner: world.owner.clone(),
        cluster: Some(cluster(&*world.ids, &world.owner, "heron", 1).id),
        volume: None,
        waiting,
        step: 0,
        failure: None,
        attempts: 0,
        due: Time::from_micros(due),
        deadline: Time::from_micros(i64::MAX),
        message: None,
        created: Time::from_micros(due),
        ended: None,
        epoch: 0,
    }
}

async fn insert(world: &World, request: &Request) {
    let request = request.clone();
    world.store.write(move |tx| requests::insert(tx, &request)).await.unwrap();
}

/// A lease has one holder, and a former holder can write nothing.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn lease_has_one_holder(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    insert(&world, &request(&world, 5, false)).await;
    let lease = || world.store.write(|tx| requests::lease_due(tx, LEASE, 10));
    let first = lease().await.unwrap().pop().unwrap();
    assert_eq!(first.status, RequestStatus::Processing);
    assert!(lease().await.unwrap().is_empty(), "it is leased");
    world.clock.advance(LEASE * 2);
    let second = lease().await.unwrap().pop().unwrap();
    assert_eq!(second.epoch, first.epoch + 1);
    let (old, new) = (first.clone(), second.clone());
    let lost = world.store.write(move |tx| requests::save(tx, &old)).await;
    assert!(matches!(lost, Err(Error::Conflict)), "the first holder lost it");
    assert!(matches!(world.store.write(move |tx| requests::renew(tx, &first, LEASE)).await, Err(Error::Conflict)));
    world.store.write(move |tx| requests::save(tx, &new)).await.unwrap();
    let ended = Request { status: RequestStatus::Completed, ended: Some(Time::from_micros(9)), ..second };
    let (once, twice) = (ended.clone(), ended.clone());
    world.store.write(move |tx| requests::save(tx, &once)).await.unwrap();
    assert!(world.store.write(move |tx| requests::save(tx, &twice)).await.is_err(), "what ended does not change");
    assert_eq!(world.store.read(|tx| requests::get(tx, &ended.id)).await.unwrap(), Some(ended));
}

/// The capacity queue is first come, first served.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn capacity_queue_is_ordered(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let line: Vec<_> =
        (1..=3).map(|n| Request { due: Time::from_micros(i64::MAX), ..request(&world, n, true) }).collect();
    for waiting in line.iter().rev() {
        insert(&world, waiting).await;
    }
    let order: Vec<_> = line.iter().map(|waiting| waiting.id.clone()).collect();
    assert_eq!(world.store.read(|tx| requests::line(tx, 10)).await.unwrap(), order);
    assert_eq!(world.store.read(|tx| requests::line_length(tx, 2)).await.unwrap(), 2, "counted up to the limit");
    world.store.write(|tx| requests::wake_line(tx, 2)).await.unwrap();
    let woken = world.store.write(|tx| requests::lease_due(tx, LEASE, 10)).await.unwrap();
    let mut woken: Vec<_> = woken.into_iter().map(|request| request.id).collect();
    woken.sort();
    let mut first_two = vec![line[0].id.clone(), line[1].id.clone()];
    first_two.sort();
    assert_eq!(woken, first_two);
}

/// A leased request does not hide another due request.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn leased_request_hides_no_due_request(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    insert(&world, &request(&world, 1, false)).await;
    world.store.write(|tx| requests::lease_due(tx, LEASE, 1)).await.unwrap();
    assert_eq!(world.store.read(requests::next_due).await.unwrap(), None);
    insert(&world, &request(&world, 2, false)).await;
    assert_eq!(world.store.read(requests::next_due).await.unwrap(), Some(Time::from_micros(2)));
    assert_eq!(world.store.write(requests::release_all).await.unwrap(), 1);
    assert_eq!(world.store.read(requests::next_due).await.unwrap(), Some(Time::from_micros(1)));
}

/// A note survives saved progress and needs a valid lease.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn note_survives_progress(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    insert(&world, &request(&world, 5, false)).await;
    let leased = world.store.write(|tx| requests::lease_due(tx, LEASE, 10)).await.unwrap().pop().unwrap();
    let note = async || world.store.read(|tx| requests::note(tx, &leased.id)).await.unwrap();
    assert_eq!(note().await, None);
    let held = leased.clone();
    world.store.write(move |tx| requests::set_note(tx, &held, "a process was killed")).await.unwrap();
    // The runner's copy does not contain the note, and saving its progress must not lose it.
    let progressed = Request { step: 1, ..leased.clone() };
    world.store.write(move |tx| requests::save(tx, &progressed)).await.unwrap();
    assert_eq!(note().await.as_deref(), Some("a process was killed"));
    let lost = Request { epoch: leased.epoch - 1, ..leased.clone() };
    let refused = world.store.write(move |tx| requests::set_note(tx, &lost, "never")).await;
    assert!(matches!(refused, Err(Error::Conflict)), "{refused:?}");
    assert_eq!(note().await.as_deref(), Some("a process was killed"));
}
