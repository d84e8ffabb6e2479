//! Rows of older versions keep their meaning.

use std::sync::Arc;

use rstest::rstest;
use tarn_model::ids::VolumeId;
use tarn_model::storage::{VolumeRemains, VolumeState};
use tarn_store::s3_keys::KeyHolder;
use tarn_store::testing::{DatabaseKind, ManualClock, SeededIds, empty};
use tarn_store::{Store, accounts, installation, s3_keys, storage};

use crate::support::raw;

/// Volumes that failed before the migration have no data to recover.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn old_failed_volumes_have_no_data(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(fresh) = empty(database).await else { return };
    let before = [
        "create table migrations (version bigint primary key);",
        include_str!("../../../../migrations/0001_spine.sql"),
        include_str!("../../../../migrations/0002_machines.sql"),
        "insert into migrations (version) values (1), (2);",
        "insert into volumes (id, scope, name, user_id, size_gb, first_size_gb, remains, deletion_protection, state, reason, \
         since_us, created_us, version) values \
         ('s-000000000000', 'u-000000000000', 'none', 'u-000000000000', 5, 5, 0, 0, 'FAILED', 'why', 1, 1, 0), \
         ('s-000000000001', 'u-000000000000', 'some', 'u-000000000000', 5, 5, 1, 0, 'FAILED', 'why', 1, 1, 0), \
         ('s-000000000002', 'u-000000000000', 'all', 'u-000000000000', 5, 5, 1, 0, 'READY', null, 1, 1, 0);",
    ];
    raw(&fresh.database, &before.concat()).await;
    let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7)));
    let store = Store::open(&fresh.database, clock, ids).await.unwrap();
    let failed = |left| VolumeState::Failed { reason: "why".into(), left };
    let states = [failed(VolumeRemains::Nothing), failed(VolumeRemains::Parts), VolumeState::Ready];
    for (number, state) in states.into_iter().enumerate() {
        let id: VolumeId = format!("s-{number:012}").parse().unwrap();
        assert_eq!(store.read(|tx| storage::get(tx, &id)).await.unwrap().unwrap().state, state);
    }
}

/// The key of an organization from before the migration still opens its objects, and the engine's own account has none.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn old_access_key_becomes_legacy(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(fresh) = empty(database).await else { return };
    let before = [
        "create table migrations (version bigint primary key);",
        include_str!("../../../../migrations/0001_spine.sql"),
        include_str!("../../../../migrations/0002_machines.sql"),
        include_str!("../../../../migrations/0003_volumes.sql"),
        include_str!("../../../../migrations/0004_objects.sql"),
        "insert into migrations (version) values (1), (2), (3), (4);",
        "insert into accounts (org_id, access_key, closing, bytes, objects, requests, created_us) values \
         ('o-000000000000', 'TARNENGINE', 0, 0, 0, 0, 1), ('o-000000000001', 'TARNSHARED', 0, 5, 1, 2, 1);",
    ];
    raw(&fresh.database, &before.concat()).await;
    let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7)));
    let store = Store::open(&fresh.database, clock, ids).await.unwrap();
    let org = "o-000000000001".parse().unwrap();
    let shared = store.read(|tx| s3_keys::holder(tx, "TARNSHARED")).await.unwrap();
    assert_eq!(shared, Some(KeyHolder { org, user: None, ends: None }));
    assert_eq!(store.read(|tx| s3_keys::holder(tx, "TARNENGINE")).await.unwrap(), None);
    assert_eq!(store.read(accounts::count_legacy_keys).await.unwrap(), 1);
}

/// An installation that has users before the migration keeps the older defaults; a new one does not.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn older_installation_keeps_permissive_defaults(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(false, true)] is_older: bool,
) {
    let Some(fresh) = empty(database).await else { return };
    if is_older {
        let before = [
            "create table migrations (version bigint primary key);",
            include_str!("../../../../migrations/0001_spine.sql"),
            include_str!("../../../../migrations/0002_machines.sql"),
            "insert into migrations (version) values (1), (2);",
            "insert into users (id, email, org_admin, engine_admin, disabled, created_us) values ('u-000000000000', 'a@b', 1, 1, 0, 1);",
        ];
        raw(&fresh.database, &before.concat()).await;
    }
    let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7)));
    let store = Store::open(&fresh.database, clock, ids).await.unwrap();
    assert_eq!(store.read(installation::keeps_permissive_defaults).await.unwrap(), is_older);
}
