//! Acknowledged writes survive reopening the store, and wrong addresses are refused.

use rstest::rstest;
use tarn_store::testing::{DatabaseKind, World};
use tarn_store::{Database, Error, Store, clusters, events};

use crate::support::{cluster, granted, world};

/// A store that is opened again finds everything.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn reopened_store_finds_rows(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let made = cluster(&*world.ids, &world.owner, "heron", 1);
    let row = made.clone();
    world.store.write(move |tx| clusters::insert(tx, &row)).await.unwrap();
    let again = Store::open(&world.fresh.database, world.clock.clone(), world.ids.clone()).await.unwrap();
    assert_eq!(again.read(|tx| clusters::get(tx, &made.id)).await.unwrap(), Some(made));
}

/// A closed store leaves one file. Otherwise a program that only reads it would have to create others.
#[tokio::test(flavor = "multi_thread")]
async fn closed_store_leaves_one_file() {
    for _ in 0..20 {
        let Some(World { store, fresh, .. }) = World::open(DatabaseKind::Sqlite).await else { return };
        store.write(|tx| tx.record("o-1", granted(1))).await.unwrap();
        assert_eq!(store.read(|tx| events::after(tx, 0, 10)).await.unwrap().len(), 1);
        drop(store);
        let Database::Sqlite(path) = &fresh.database else { panic!("this is SQLite") };
        let left: Vec<_> = path.parent().unwrap().read_dir().unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, [path.file_name().unwrap()]);
    }
}

/// A read transaction cannot write.
#[tokio::test(flavor = "multi_thread")]
async fn readers_cannot_write() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let made = cluster(&*world.ids, &world.owner, "heron", 1);
    let written = world.store.read(|tx| clusters::insert(tx, &made)).await;
    assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
}

/// Wrong addresses are refused without showing the password.
#[tokio::test(flavor = "multi_thread")]
async fn bad_addresses_are_refused() {
    let (clock, ids) = (
        std::sync::Arc::new(tarn_store::testing::ManualClock::default()),
        std::sync::Arc::new(tarn_store::testing::SeededIds::new(1)),
    );
    let secret = Database::Postgres("postgres://user:s3cret@127.0.0.1:1/none?nonsense=1".into());
    let refused = Store::open(&secret, clock.clone(), ids.clone()).await.err().unwrap().to_string();
    assert!(!refused.contains("s3cret"), "{refused}");
    let unreachable = Database::Postgres("postgres://user@127.0.0.1:1/none".into());
    assert!(matches!(Store::open(&unreachable, clock, ids).await, Err(Error::Unavailable(_))));
}
