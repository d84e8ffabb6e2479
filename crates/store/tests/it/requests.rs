//! Leases have one holder at a time, and a former holder can write nothing.

use std::time::Duration;

use rstest::rstest;
use tarn_model::Time;
use tarn_model::ids::RequestId;
use tarn_model::requests::{AttachmentChange, Progress, Request, RequestKind, RequestStatus};
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, requests, usage};

use crate::support::{World, cluster, raw, world};

const LEASE: Duration = Duration::from_secs(10);

fn request(world: &World, due: i64, waiting: bool) -> Request {
    Request {
        id: RequestId::fresh(&*world.ids),
        kind: RequestKind::ClaimCluster(cluster(&*world.ids, &world.owner, "heron", 1).id),
        owner: world.owner.clone(),
        progress: if waiting { Progress::Queued } else { Progress::New },
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
    assert_eq!(first.status(), RequestStatus::Processing);
    assert!(lease().await.unwrap().is_empty(), "it is leased");
    world.clock.advance(LEASE * 2);
    let second = lease().await.unwrap().pop().unwrap();
    assert_eq!(second.epoch, first.epoch + 1);
    let (old, new) = (first.clone(), second.clone());
    let lost = world.store.write(move |tx| requests::save(tx, &old)).await;
    assert!(matches!(lost, Err(Error::Conflict)), "the first holder lost it");
    assert!(matches!(world.store.write(move |tx| requests::renew(tx, &first, LEASE)).await, Err(Error::Conflict)));
    world.store.write(move |tx| requests::save(tx, &new)).await.unwrap();
    let ended = Request { progress: Progress::Completed { steps: 1 }, ended: Some(Time::from_micros(9)), ..second };
    let (once, twice) = (ended.clone(), ended.clone());
    world.store.write(move |tx| requests::save(tx, &once)).await.unwrap();
    assert!(world.store.write(move |tx| requests::save(tx, &twice)).await.is_err(), "what ended does not change");
    assert_eq!(world.store.read(|tx| requests::get(tx, &ended.id)).await.unwrap(), Some(ended));
}

/// The capacity queue is read in order, and its oldest request is woken.
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
    let places = world.store.read(|tx| tarn_store::line::places(tx, 10)).await.unwrap();
    assert_eq!(places.into_iter().map(|place| place.request).collect::<Vec<_>>(), order);
    assert_eq!(world.store.read(|tx| tarn_store::line::length(tx, 2)).await.unwrap(), 2, "counted up to the limit");
    // A leased request may be that of a dead runner, so that another one is woken.
    for waiting in &line {
        world.store.write(tarn_store::line::wake).await.unwrap();
        let woken = world.store.write(|tx| requests::lease_due(tx, LEASE, 10)).await.unwrap();
        assert_eq!(woken.iter().map(|request| &request.id).collect::<Vec<_>>(), [&waiting.id]);
    }
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
    let progressed = Request { progress: Progress::Forward { next: 1 }, ..leased.clone() };
    world.store.write(move |tx| requests::save(tx, &progressed)).await.unwrap();
    assert_eq!(note().await.as_deref(), Some("a process was killed"));
    let lost = Request { epoch: leased.epoch - 1, ..leased.clone() };
    let refused = world.store.write(move |tx| requests::set_note(tx, &lost, "never")).await;
    assert!(matches!(refused, Err(Error::Conflict)), "{refused:?}");
    assert_eq!(note().await.as_deref(), Some("a process was killed"));
}

/// The columns `type`, `cluster_id` and `volume_id`, as SQL.
type Columns = (&'static str, &'static str, &'static str);

/// Rows of every version mean the same, and are written in the same form.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn request_rows_keep_their_form(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (cluster, volume) = ("c-000000000001".parse().unwrap(), "s-000000000001".parse().unwrap());
    raw(
        &world.fresh.database,
        "insert into attachments values ('c-000000000001', 's-000000000001', 'ATTACHED', 0, 1);",
    )
    .await;
    let claim = || RequestKind::ClaimCluster("c-000000000001".parse().unwrap());
    let detach = RequestKind::DetachStorage(AttachmentChange { volume, cluster, live: false });
    let undoing = Progress::Undoing { left: 2, why: "why".into() };
    let failed = Progress::Failed { left: 1, why: Some("why".into()) };
    let of_claim = ("'CLUSTER_CLAIM'", "'c-000000000001'", "null");
    let of_detach = ("'STORAGE_DETACH'", "'c-000000000001'", "'s-000000000001'");
    let rows: [(RequestKind, Progress, u32, Columns, &str); 10] = [
        (claim(), Progress::Queued, 0, of_claim, "'PENDING', 1, 0, null"),
        (claim(), Progress::Queued, 1, of_claim, "'RETRYING', 1, 0, null"),
        (claim(), Progress::New, 0, of_claim, "'PENDING', 0, 0, null"),
        (claim(), Progress::Forward { next: 2 }, 0, of_claim, "'PROCESSING', 0, 2, null"),
        (claim(), Progress::Forward { next: 2 }, 3, of_claim, "'RETRYING', 0, 2, null"),
        (claim(), undoing.clone(), 0, of_claim, "'PROCESSING', 0, 2, 'why'"),
        (detach.clone(), undoing, 1, of_detach, "'RETRYING', 0, 2, 'why'"),
        (detach, Progress::Completed { steps: 4 }, 0, of_detach, "'COMPLETED', 0, 4, null"),
        (claim(), failed, 1, of_claim, "'FAILED', 0, 1, 'why'"),
        (claim(), Progress::Failed { left: 1, why: None }, 0, of_claim, "'FAILED', 0, 1, null"),
    ];
    for (kind, progress, attempts, (name, of, on), columns) in rows {
        let ended = matches!(progress, Progress::Completed { .. } | Progress::Failed { .. });
        let ended = ended.then(|| Time::from_micros(2));
        let expected = Request { kind, progress, attempts, ended, ..request(&world, 1, false) };
        insert_raw(&world, &expected, &format!("{name}, {of}, {on}, {columns}, {attempts}")).await;
        let read = world.store.read(|tx| requests::get(tx, &expected.id)).await.unwrap().unwrap();
        assert_eq!(read, expected, "{columns}");
        let again = Request { id: RequestId::fresh(&*world.ids), ..expected };
        insert(&world, &again).await;
        let [status, waiting, step, failure] = columns.split(", ").collect::<Vec<_>>().try_into().unwrap();
        let same =
            |column, value| if value == "null" { format!("{column} is null") } else { format!("{column} = {value}") };
        let same = [
            same("type", name),
            same("cluster_id", of),
            same("volume_id", on),
            same("status", status),
            same("waiting", waiting),
            same("step", step),
            same("failure", failure),
        ];
        raw(&world.fresh.database, &format!("delete from requests where {};", same.join(" and "))).await;
        assert_eq!(world.store.read(|tx| requests::get(tx, &again.id)).await.unwrap(), None, "{columns}");
    }
}

/// A row whose columns do not fit each other is reported, and not repaired by a guess.
#[rstest]
#[case("'CLUSTER_CLAIM', null, null, 'PENDING', 0, 0, null, 0")]
#[case("'CLUSTER_CLAIM', 'c-000000000001', 's-000000000001', 'PENDING', 0, 0, null, 0")]
#[case("'STORAGE_ATTACH', null, 's-000000000001', 'PENDING', 0, 0, null, 0")]
#[case("'CLUSTER_PAINT', 'c-000000000001', null, 'PENDING', 0, 0, null, 0")]
#[case("'CLUSTER_CLAIM', 'c-000000000001', null, 'PAINTED', 0, 0, null, 0")]
#[case("'CLUSTER_CLAIM', 'c-000000000001', null, 'PENDING', 0, 3, null, 0")]
#[case("'CLUSTER_CLAIM', 'c-000000000001', null, 'PROCESSING', 1, 1, null, 0")]
#[case("'CLUSTER_CLAIM', 'c-000000000001', null, 'COMPLETED', 0, 5, 'why', 0")]
#[tokio::test(flavor = "multi_thread")]
async fn contradictory_request_row_is_corrupt(#[case] columns: &str) {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let named = request(&world, 1, false);
    insert_raw(&world, &named, columns).await;
    let read = world.store.read(|tx| requests::get(tx, &named.id)).await;
    assert!(matches!(&read, Err(Error::Corrupt(why)) if why.contains(named.id.as_str())), "{read:?}");
}

async fn insert_raw(world: &World, request: &Request, columns: &str) {
    let (user, org) = (&request.owner.user, request.owner.org.as_ref().unwrap());
    let ended = request.ended.map_or("null".to_owned(), |_| "2".to_owned());
    let sql = format!(
        "insert into requests (id, type, cluster_id, volume_id, status, waiting, step, failure, attempts, user_id, org_id, \
         scope, due_us, deadline_us, lease_until_us, epoch, created_us, ended_us) \
         values ('{}', {columns}, '{user}', '{org}', '{org}', 1, {}, 0, 0, 1, {ended});",
        request.id,
        i64::MAX
    );
    raw(&world.fresh.database, &sql).await;
}

/// Only so many requests of a scope are kept: the oldest that have ended are removed first, and open ones never.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn kept_requests_are_limited(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (open, ended) = (request(&world, 1, false), Time::from_micros(2));
    insert(&world, &open).await;
    let new = |at: i64| Request {
        progress: Progress::Completed { steps: 0 },
        ended: Some(ended),
        ..request(&world, at, false)
    };
    let many: Vec<Request> = (2..i64::try_from(requests::MAX_KEPT).unwrap() + 12).map(new).collect();
    let (first, last) = (many[0].id.clone(), many.last().unwrap().id.clone());
    let fill = world.store.write(move |tx| many.iter().try_for_each(|one| requests::insert(tx, one)));
    fill.await.unwrap();
    let scope = world.owner.scope();
    let read = world.store.read(|tx| {
        assert!(requests::get(tx, &open.id)?.is_some() && requests::get(tx, &last)?.is_some());
        assert_eq!(requests::get(tx, &first)?, None, "the oldest is gone");
        Ok::<_, Error>((usage::counters(tx, scope)?[1], usage::recount(tx, scope)?[1]))
    });
    let (counted, kept) = read.await.unwrap();
    assert!(counted == kept && kept <= requests::MAX_KEPT + 1, "{counted} {kept}");
    let expire = world.store.write(move |tx| tarn_store::expiry::forget_ended(tx, ended));
    assert_eq!(expire.await.unwrap(), 500, "a batch at a time");
    let counters = world.store.read(|tx| usage::counters(tx, scope)).await.unwrap();
    assert_eq!(counters[1], kept - 500);
}
