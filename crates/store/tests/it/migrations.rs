//! Rows of older versions keep their meaning.

use std::sync::Arc;

use rstest::rstest;
use tarn_model::Time;
use tarn_model::ids::{RequestId, VolumeId};
use tarn_model::requests::Request;
use tarn_model::storage::{VolumeRemains, VolumeState};
use tarn_store::s3_keys::KeyHolder;
use tarn_store::testing::{DatabaseKind, ManualClock, SeededIds, empty};
use tarn_store::{Store, accounts, installation, line, requests, s3_keys, storage, usage};

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

/// Claims that wait when the program is replaced keep their places, and equal ones are found to be equal.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn older_waiting_claims_keep_their_places(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(fresh) = empty(database).await else { return };
    let claim = |number: u32, cpus: u32| {
        format!(
            "insert into clusters (id, scope, name, user_id, instance_type, num_nodes, hourly_rate_micros, deletion_protection, state, \
             since_us, created_us, version) values ('c-{number:012}', 'o-000000000000', 'n{number}', 'u-000000000000', 'x', 1, 0, 0, \
             'PENDING', 1, 1, 0); \
             insert into instances (id, cluster_id, node, state, cpu_milli, memory_bytes, gpu_count, gpus, holds_capacity, boot) \
             values ('i-{number:012}', 'c-{number:012}', 0, 'PENDING', {cpus}000, 5, 0, '', 0, 1); \
             insert into requests (id, type, status, user_id, org_id, scope, cluster_id, waiting, step, attempts, due_us, deadline_us, \
             lease_until_us, epoch, created_us) values ('r-{number:012}', 'CLUSTER_CLAIM', 'PENDING', 'u-000000000000', \
             'o-000000000000', 'o-000000000000', 'c-{number:012}', 1, 0, 0, 99, 99, 0, 0, {number});"
        )
    };
    let before = [
        "create table migrations (version bigint primary key);",
        include_str!("../../../../migrations/0001_spine.sql"),
        "insert into migrations (version) values (1);",
        &claim(7, 2),
        &claim(8, 2),
        &claim(9, 4),
    ];
    raw(&fresh.database, &before.concat()).await;
    let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7)));
    let store = Store::open(&fresh.database, clock, ids).await.unwrap();
    let id = |number: u32| format!("r-{number:012}").parse::<RequestId>().unwrap();
    let mut firsts = store.read(|tx| line::firsts(tx, 10)).await.unwrap();
    firsts.sort_by_key(|one| one.place.since);
    assert_eq!(firsts.iter().map(|one| one.place.request.clone()).collect::<Vec<_>>(), [id(7), id(9)]);
    let next = store.read(|tx| line::next_equals(tx, &firsts[0].place, 10)).await.unwrap();
    assert_eq!(next.len(), 1);
    assert_eq!((&next[0].place.request, &next[0].claim), (&id(8), &firsts[0].claim));
    assert_eq!(store.read(|tx| line::lengths_of(tx, "o-000000000000", 10)).await.unwrap(), (3, 3));
    // A claim that arrives now is equal to those that waited before.
    let (key, request) = (firsts[0].claim.clone(), store.read(|tx| requests::get(tx, &id(7))).await.unwrap().unwrap());
    let request = Request { id: id(10), due: Time::from_micros(50), ..request };
    store.write(move |tx| line::enter(tx, &request, &key)).await.unwrap();
    assert_eq!(store.read(|tx| line::firsts(tx, 10)).await.unwrap().len(), 2);
    assert_eq!(store.read(|tx| requests::get(tx, &id(10))).await.unwrap().unwrap().due, Time::from_micros(99));
}

/// What older versions keep is counted once, when the database is migrated.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn older_rows_are_counted(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(fresh) = empty(database).await else { return };
    let before = [
        "create table migrations (version bigint primary key);",
        include_str!("../../../../migrations/0001_spine.sql"),
        include_str!("../../../../migrations/0002_machines.sql"),
        include_str!("../../../../migrations/0003_volumes.sql"),
        include_str!("../../../../migrations/0004_objects.sql"),
        include_str!("../../../../migrations/0005_jobs.sql"),
        "insert into migrations (version) values (1), (2), (3), (4), (5);",
        "insert into buckets (id, org_id, name, versioning, created_us) values ('b-000000000001', 'o-000000000000', 'jobs', 0, 1), \
         ('b-000000000002', 'o-000000000007', 'jobs', 0, 1);",
        "insert into jobs (id, scope, user_id, cluster_id, instance_type, name, state, since_us, attempt, created_us, version, \
         config, teardown, log_bytes, removing, lease_until_us, epoch) values \
         ('j-000000000001', 'o-000000000007', 'u-000000000001', 'c-000000000001', '1xCPU', 'a', 'ENDED', 1, 1, 1, 0, '{}', 0, 0, 0, 0, 0), \
         ('j-000000000002', 'o-000000000007', 'u-000000000001', 'c-000000000001', '1xCPU', 'b', 'ENDED', 1, 1, 1, 0, '{}', 0, 0, 1, 0, 0);",
        "insert into job_logs (job_id, start, length) values ('j-000000000001', 0, 40); ",
        "insert into objects (bucket_id, key, sequence, modified_us, size, etag, details) values \
         ('b-000000000001', 'j-000000000001/log/00000000000000000000', 1, 1, 40, 'e', '{}'), \
         ('b-000000000001', 'j-000000000002/outputs/a', 1, 1, 2, 'e', '{}'), \
         ('b-000000000002', 'j-000000000001/mine', 1, 1, 1000, 'e', '{}');",
        "insert into idempotency (user_id, key, fingerprint, outcome, created_us) select 'u-000000000001', 'k', data, data, 1 \
         from (select cast('x' as bytea) as data) one;",
    ];
    raw(&fresh.database, &before.concat()).await;
    let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7)));
    let store = Store::open(&fresh.database, clock, ids).await.unwrap();
    assert_eq!(store.read(|tx| usage::counters(tx, "o-000000000007")).await.unwrap(), [42, 0, 0]);
    assert_eq!(store.read(|tx| usage::counters(tx, "u-000000000001")).await.unwrap(), [0, 0, 1]);
    let end = tarn_model::Time::from_micros(i64::MAX);
    store.write(move |tx| tarn_store::idempotency::remove_expired(tx, end)).await.unwrap();
    let emptied = store.read(|tx| usage::counters(tx, "u-000000000001")).await.unwrap();
    assert_eq!(emptied, [0, 0, 0], "an older outcome leaves the counter that it was added to");
}
