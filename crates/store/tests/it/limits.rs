//! Limits and the usage that counts against them.

use rstest::rstest;
use tarn_model::limits::{Amounts, Limits};
use tarn_store::testing::DatabaseKind;
use tarn_store::{installation, limits};

use crate::support::world;

/// Limits are saved, listed and removed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn limits_are_saved_listed_and_removed(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let store = &world.store;
    let some = Limits { gpus: Some(0), object_bytes: Some(1 << 50), ..Limits::default() };
    let write = store.write(move |tx| {
        for scope in ["u-2", "o-1", "o-3"] {
            limits::set(tx, scope, &some)?;
        }
        limits::set(tx, "o-3", &Limits { instances: Some(7), ..some })?;
        limits::set(tx, "u-2", &Limits::default())
    });
    write.await.unwrap();
    let read = store.read(|tx| {
        assert_eq!(limits::get(tx, "o-1")?, some);
        assert_eq!(limits::get(tx, "o-3")?.instances, Some(7));
        assert_eq!(limits::get(tx, "u-2")?, Limits::default());
        assert_eq!(limits::object_bytes(tx, "o-1")?, Some(1 << 50));
        assert_eq!(limits::used(tx, "o-1")?, Amounts::default(), "nothing is there");
        assert_eq!((limits::list(tx, "", 10)?.len(), limits::list(tx, "o-1", 1)?), (2, vec!["o-3".to_owned()]));
        Ok::<_, tarn_store::Error>(())
    });
    read.await.unwrap();
}

/// A value of the installation can be replaced.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn installation_value_is_replaced(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let store = &world.store;
    for value in ["first", "second"] {
        store.write(move |tx| installation::set(tx, "seen", value)).await.unwrap();
    }
    assert_eq!(store.read(|tx| installation::get(tx, "seen")).await.unwrap().as_deref(), Some("second"));
}
