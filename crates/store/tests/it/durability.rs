//! What was acknowledged is there after the store was opened again, and a database of the future is left alone.

use rstest::rstest;
use tarn_store::testing::DatabaseKind;
use tarn_store::{Database, Error, Store, clusters};

use crate::support::{cluster, world};

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn opening_again_finds_everything(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(world) = world(engine).await else { return };
    let made = cluster(&*world.ids, &world.owner, "heron", 1);
    let row = made.clone();
    world.store.write(move |tx| clusters::insert(tx, &row)).await.unwrap();
    let again = Store::open(&world.fresh.database, world.clock.clone(), world.ids.clone()).await.unwrap();
    assert_eq!(again.read(|tx| clusters::get(tx, &made.id)).await.unwrap(), Some(made));
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_cannot_write() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let made = cluster(&*world.ids, &world.owner, "heron", 1);
    let written = world.store.read(|tx| clusters::insert(tx, &made)).await;
    assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_addresses_and_collations_are_refused() {
    let (clock, ids) = (
        std::sync::Arc::new(tarn_store::testing::ManualClock::default()),
        std::sync::Arc::new(tarn_store::testing::SeededIds::new(1)),
    );
    let secret = Database::Postgres("postgres://user:s3cret@127.0.0.1:1/none?nonsense=1".into());
    let refused = Store::open(&secret, clock.clone(), ids.clone()).await.err().unwrap().to_string();
    assert!(!refused.contains("s3cret"), "{refused}");
    let nobody = Database::Postgres("postgres://user@127.0.0.1:1/none".into());
    assert!(matches!(Store::open(&nobody, clock, ids).await, Err(Error::Unavailable(_))));
}
