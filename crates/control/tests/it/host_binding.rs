//! The binding of a database to a driver, as it is stored.

use std::sync::Arc;

use rstest::rstest;
use tarn_control::host_binding::{adopt, bind, find, say_stopped, stay_bound};
use tarn_control::reconcilers;
use tarn_model::Clock;
use tarn_model::host_binding::{ALIVE, Claimant, DriverBinding, HostBinding, NotBound, Place};
use tarn_model::testing::ManualClock;
use tarn_store::testing::{DatabaseKind, SeededIds, World, empty};
use tarn_store::{Store, clock, events, examine, installation};

fn place(installation: &str, seat: &str) -> Place {
    Place { installation: installation.into(), seat: seat.into() }
}

fn host(installation: &str, seat: &str) -> Claimant {
    Claimant::Host(place(installation, seat))
}

/// The first engine binds a database that is bound to none; another one is refused and changes nothing, also after the
/// first has stopped.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn first_engine_binds_database(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let store = world.store.clone();
    let (ours, other) = (host("abc123", "boot-1 /data with spaces"), host("def456", "boot-2 /data"));
    let foreign = Err(NotBound::Foreign { installation: "abc123".into() });
    assert_eq!(find(&store).await.unwrap().bound, None);
    assert_eq!(bind(&store, ours.clone()).await.unwrap(), Ok(()));
    let Some(DriverBinding::Host(HostBinding { place: bound, seen: Some(seen) })) = find(&store).await.unwrap().bound
    else {
        panic!("an engine that is alive has bound it")
    };
    assert_eq!(bound, place("abc123", "boot-1 /data with spaces"));
    assert!(seen <= world.clock.now());
    for refused in [&other, &Claimant::Fake] {
        assert_eq!(bind(&store, refused.clone()).await.unwrap(), foreign);
    }
    assert!(stay_bound(&store, ours.clone()).await.unwrap());
    say_stopped(&store, place("def456", "boot-2 /data")).await.unwrap();
    let moved = host("abc123", "boot-2 /elsewhere");
    assert_eq!(bind(&store, moved.clone()).await.unwrap(), Err(NotBound::AliveElsewhere { seconds_ago: 0 }));
    say_stopped(&store, place("abc123", "boot-1 /data with spaces")).await.unwrap();
    assert_eq!(bind(&store, other).await.unwrap(), foreign);
    assert_eq!(bind(&store, moved).await.unwrap(), Ok(()), "a directory may be moved after an orderly stop");
    assert!(!stay_bound(&store, ours).await.unwrap(), "the engine at the earlier place must end");
}

/// Replicas with the fake driver share a database, which the local driver gets only from an operator. Then they end.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn fake_driver_binds_database(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let (store, ours) = (&world.store, place("abc123", "boot-1 /data"));
    for _replica in 0..2 {
        assert_eq!(bind(store, Claimant::Fake).await.unwrap(), Ok(()));
        assert!(stay_bound(store, Claimant::Fake).await.unwrap());
    }
    assert_eq!(bind(store, Claimant::Host(ours.clone())).await.unwrap(), Err(NotBound::OfFakeDriver));
    assert_eq!(find(store).await.unwrap().bound, Some(DriverBinding::Fake), "a refused engine changes nothing");
    assert_eq!(adopt(store, ours.clone()).await.unwrap(), Ok(Some(DriverBinding::Fake)));
    assert!(!stay_bound(store, Claimant::Fake).await.unwrap());
    bind(store, Claimant::Host(ours)).await.unwrap().unwrap();
}

/// An operator gives the database to another installation only when the engine of the first is silent. That engine is
/// refused afterwards.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn silent_engine_is_replaced(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let (store, clock) = (world.store.clone(), &world.clock);
    let (lost, new) = (host("abc123", "boot-1 /data"), place("def456", "boot-2 /data"));
    bind(&store, lost.clone()).await.unwrap().unwrap();
    clock.advance(ALIVE / 2);
    assert_eq!(adopt(&store, new.clone()).await.unwrap(), Err(NotBound::AliveElsewhere { seconds_ago: 30 }));
    assert!(stay_bound(&store, lost.clone()).await.unwrap(), "a refused adoption changes nothing");
    clock.advance(ALIVE);
    let earlier = adopt(&store, new.clone()).await.unwrap().unwrap();
    assert!(matches!(earlier, Some(DriverBinding::Host(bound)) if bound.place.installation == "abc123"));
    assert!(!stay_bound(&store, lost.clone()).await.unwrap());
    assert_eq!(bind(&store, lost).await.unwrap(), Err(NotBound::Foreign { installation: "def456".into() }));
    bind(&store, Claimant::Host(new)).await.unwrap().unwrap();
    let log = store.read(|tx| events::after(tx, 0, 100)).await.unwrap();
    let adopted: Vec<_> = log.iter().filter(|event| event.verb == "machine.adopted").collect();
    assert_eq!(adopted.len(), 1, "{log:?}");
    assert_eq!(adopted[0].detail["earlier"], "abc123");
}

/// A database is examined without a change: an empty one, and one of an older schema.
#[tokio::test(flavor = "multi_thread")]
async fn database_is_examined_without_change() {
    let Some(fresh) = empty(DatabaseKind::Postgres).await else { return };
    let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7)));
    let open = || Store::open_read_only(&fresh.database, false, clock.clone(), ids.clone());
    let found = find(&open().await.unwrap()).await.unwrap();
    assert_eq!((found.bound, found.users), (None, Vec::new()));
    let version = open().await.unwrap().read(examine::version).await.unwrap();
    assert_eq!(version, None, "it is still empty");
    // An engine has it open, and it is seen.
    let store = Store::open(&fresh.database, clock.clone(), ids.clone()).await.unwrap();
    let older = store.write(|tx| installation::set(tx, "local_driver", "abc123 stopped boot-1 /data"));
    older.await.unwrap();
    let found = find(&open().await.unwrap()).await.unwrap();
    assert!(matches!(found.bound, Some(DriverBinding::Host(bound)) if bound.seen.is_none()));
    assert_eq!(found.users, ["127.0.0.1"]);
}

/// An operator whose host has a wrong clock does not take a running engine for dead.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_clock_makes_no_engine_dead() {
    let Some(world) = World::open(DatabaseKind::Postgres).await else { return };
    let server = clock::server_time(&world.store).await.unwrap().unwrap();
    world.clock.set_back(world.clock.now().until(server));
    bind(&world.store, host("abc123", "boot-1 /data")).await.unwrap().unwrap();
    let wrong = Arc::new(ManualClock::default());
    wrong.set_back(wrong.now().until(server));
    wrong.advance(ALIVE * 60);
    let store = Store::open(&world.fresh.database, wrong.clone(), world.ids.clone()).await.unwrap();
    let found = find(&store).await.unwrap();
    let bound = found.bound.unwrap();
    assert_eq!(bound.check_replaceable(wrong.now()), Ok(()), "by that clock it is");
    assert!(matches!(bound.check_replaceable(found.now), Err(NotBound::AliveElsewhere { .. })));
    reconcilers::clock::resume(&store, wrong).await.unwrap();
    assert!(adopt(&store, place("def456", "boot-2 /data")).await.unwrap().is_err());
}
