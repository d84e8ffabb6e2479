//! The binding of a database to one installation of the local driver, as it is stored.

use std::sync::Arc;

use rstest::rstest;
use tarn_control::host_binding::{adopt, bind, check, check_adoption, say_stopped, stay_bound};
use tarn_control::reconcilers;
use tarn_model::Clock;
use tarn_model::host_binding::{ALIVE, NotBound, Place};
use tarn_model::testing::ManualClock;
use tarn_store::testing::{DatabaseKind, World};
use tarn_store::{Store, clock, events};

fn place(installation: &str, seat: &str) -> Place {
    Place { installation: installation.into(), seat: seat.into() }
}

/// The first engine binds a database that is bound to none; another one is refused and changes nothing, also after the
/// first has stopped.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn first_engine_binds_database(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let store = world.store.clone();
    let (ours, other) = (place("abc123", "boot-1 /data with spaces"), place("def456", "boot-2 /data"));
    let foreign = Err(NotBound::Foreign { installation: "abc123".into() });
    assert_eq!(check(&store, other.clone()).await.unwrap(), Ok(()), "it is bound to none");
    assert_eq!(bind(&store, ours.clone()).await.unwrap(), Ok(()));
    assert_eq!(check(&store, other.clone()).await.unwrap(), foreign);
    assert_eq!(bind(&store, other.clone()).await.unwrap(), foreign);
    assert!(stay_bound(&store, ours.clone()).await.unwrap());
    say_stopped(&store, other.clone()).await.unwrap();
    let moved = place("abc123", "boot-2 /elsewhere");
    assert_eq!(bind(&store, moved.clone()).await.unwrap(), Err(NotBound::AliveElsewhere { seconds_ago: 0 }));
    say_stopped(&store, ours.clone()).await.unwrap();
    assert_eq!(bind(&store, other).await.unwrap(), foreign);
    assert_eq!(bind(&store, moved).await.unwrap(), Ok(()), "a directory may be moved after an orderly stop");
    assert!(!stay_bound(&store, ours).await.unwrap(), "the engine at the earlier place must end");
}

/// An operator gives the database to another installation only when the engine of the first is silent. That engine is
/// refused afterwards.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn silent_engine_is_replaced(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let (store, clock) = (world.store.clone(), &world.clock);
    let (lost, new) = (place("abc123", "boot-1 /data"), place("def456", "boot-2 /data"));
    bind(&store, lost.clone()).await.unwrap().unwrap();
    clock.advance(ALIVE / 2);
    assert_eq!(adopt(&store, new.clone()).await.unwrap(), Err(NotBound::AliveElsewhere { seconds_ago: 30 }));
    assert!(stay_bound(&store, lost.clone()).await.unwrap(), "a refused adoption changes nothing");
    clock.advance(ALIVE);
    assert_eq!(adopt(&store, new.clone()).await.unwrap(), Ok(Some("abc123".into())));
    assert!(!stay_bound(&store, lost.clone()).await.unwrap());
    assert_eq!(bind(&store, lost).await.unwrap(), Err(NotBound::Foreign { installation: "def456".into() }));
    bind(&store, new).await.unwrap().unwrap();
    let log = store.read(|tx| events::after(tx, 0, 100)).await.unwrap();
    let adopted: Vec<_> = log.iter().filter(|event| event.verb == "machine.adopted").collect();
    assert_eq!(adopted.len(), 1, "{log:?}");
    assert_eq!(adopted[0].detail["earlier"], "abc123");
}

/// An operator whose host has a wrong clock does not take a running engine for dead.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_clock_makes_no_engine_dead() {
    let Some(world) = World::open(DatabaseKind::Postgres).await else { return };
    let server = clock::server_time(&world.store).await.unwrap().unwrap();
    world.clock.set_back(world.clock.now().until(server));
    bind(&world.store, place("abc123", "boot-1 /data")).await.unwrap().unwrap();
    let wrong = Arc::new(ManualClock::default());
    wrong.set_back(wrong.now().until(server));
    wrong.advance(ALIVE * 60);
    let store = Store::open(&world.fresh.database, wrong.clone(), world.ids.clone()).await.unwrap();
    assert_eq!(check_adoption(&store).await.unwrap(), Ok(()), "by that clock it is");
    reconcilers::clock::resume(&store, wrong).await.unwrap();
    assert!(matches!(check_adoption(&store).await.unwrap(), Err(NotBound::AliveElsewhere { .. })));
    assert!(adopt(&store, place("def456", "boot-2 /data")).await.unwrap().is_err());
}
