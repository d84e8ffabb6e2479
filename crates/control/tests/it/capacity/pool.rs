//! The pool of volumes: how much of it may be promised.

use rstest::rstest;
use tarn_control::operations::storage::{self, NewVolume, VolumeEdit};
use tarn_control::testing::{World, world};
use tarn_control::{Kind, Settings};
use tarn_store::testing::DatabaseKind;

/// A pool of 10,000 GB, under these limits.
async fn pool(database: DatabaseKind, overcommit: f64, cap_gb: Option<u64>) -> Option<World> {
    let settings = Settings { storage_overcommit: overcommit, storage_cap_gb: cap_gb, ..Default::default() };
    Some(world(database).await?.with_settings(settings))
}

/// The pool promises no more than the operator allows.
#[rstest]
#[case::as_much_as_there_is(1.0, None, 10_000, "the storage pool has 10000 GB: ")]
#[case::twice_as_much(2.0, None, 20_000, "the storage pool has 10000 GB and may promise 20000 GB: ")]
#[case::half_of_it(0.5, None, 5_000, "the storage pool has 10000 GB and may promise 5000 GB: ")]
#[case::a_part(1.0, Some(600), 600, "the storage pool has 600 GB: ")]
#[case::twice_a_part(2.0, Some(600), 1_200, "the storage pool has 600 GB and may promise 1200 GB: ")]
#[case::half_a_part(0.5, Some(600), 300, "the storage pool has 600 GB and may promise 300 GB: ")]
#[case::a_part_that_is_not_there(2.0, Some(50_000), 20_000, "the storage pool has 10000 GB and may promise 20000 GB: ")]
#[case::broken_gigabytes_are_not_promised(0.333, Some(100), 33, "the storage pool has 100 GB and may promise 33 GB: ")]
#[tokio::test(flavor = "multi_thread")]
async fn pool_promises_no_more_than_allowed(
    #[case] overcommit: f64,
    #[case] cap_gb: Option<u64>,
    #[case] limit_gb: u64,
    #[case] has: &str,
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = pool(database, overcommit, cap_gb).await else { return };
    let (control, caller) = (&world.control, &world.caller);
    let create = async |size_gb| storage::create(control, caller, NewVolume { size_gb, ..Default::default() }).await;
    let first = create(limit_gb - 10).await.unwrap().volume;
    world.settle().await;
    let full = create(11).await.unwrap_err();
    assert_eq!((full.kind, full.code), (Kind::Capacity, "pool_full"));
    let promised = limit_gb - 10;
    let expected = format!(
        "{has}{promised} GB are promised, 10 GB are free, and this call needs 11 GB more; request less, or destroy"
    );
    assert!(full.message.starts_with(&expected), "{}", full.message);
    let grow = async |size_gb| {
        let edit = VolumeEdit { size_gb: Some(size_gb), ..Default::default() };
        storage::edit(control, caller, first.as_str(), edit).await
    };
    assert_eq!(grow(limit_gb + 1).await.unwrap_err().code, "pool_full");
    grow(limit_gb).await.unwrap();
    world.settle().await;
    let full = create(1).await.unwrap_err();
    assert!(full.message.contains(" 0 GB are free, and this call needs 1 GB more"), "{}", full.message);
    world.assert_agreement("with all promised").await;
}

/// Existing volumes stay when the cap is lowered.
#[tokio::test(flavor = "multi_thread")]
async fn lower_cap_keeps_existing_volumes() {
    let Some(world) = pool(DatabaseKind::Sqlite, 2.0, Some(100)).await else { return };
    let new = NewVolume { size_gb: 150, ..Default::default() };
    let volume = storage::create(&world.control, &world.caller, new).await.unwrap().volume;
    world.settle().await;
    let world = world.with_settings(Settings { storage_cap_gb: Some(100), ..Default::default() });
    let new = NewVolume { size_gb: 1, ..Default::default() };
    let full = storage::create(&world.control, &world.caller, new).await.unwrap_err();
    assert!(
        full.message.starts_with("the storage pool has 100 GB: 150 GB are promised, 0 GB are free"),
        "{}",
        full.message
    );
    storage::destroy(&world.control, &world.caller, volume.as_str()).await.unwrap();
    world.settle().await;
    let new = NewVolume { size_gb: 100, ..Default::default() };
    storage::create(&world.control, &world.caller, new).await.unwrap();
}
