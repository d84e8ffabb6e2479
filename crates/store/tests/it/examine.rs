//! Diagnosing a database without changing it.

use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;
use tarn_store::testing::{DatabaseKind, Fresh, ManualClock, SeededIds, empty, fresh};
use tarn_store::{Database, Store, examine, installation};

use crate::support::raw;

async fn open_read_only(fresh: &Fresh, is_alone: bool) -> tarn_store::Result<Store> {
    Store::open_read_only(&fresh.database, is_alone, Arc::new(ManualClock::default()), Arc::new(SeededIds::new(1)))
        .await
}

async fn open(fresh: &Fresh) -> Store {
    Store::open(&fresh.database, Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7))).await.unwrap()
}

/// A store opened for reading sees the rows of a writer and writes nothing.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn read_only_store_reads_beside_writer(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(fresh) = fresh(database).await else { return };
    let store = open(&fresh).await;
    let reader = open_read_only(&fresh, false).await.unwrap();
    store.write(|tx| installation::remember_once(tx, "key", "value").map(drop)).await.unwrap();
    let seen: tarn_store::Result<_> = reader.read(|tx| installation::get(tx, "key")).await;
    assert_eq!(seen.unwrap().as_deref(), Some("value"));
    let refused = reader.write(|tx| installation::remember_once(tx, "other", "value").map(drop)).await;
    assert!(refused.is_err(), "a read-only store cannot write");
    assert_eq!(reader.read(examine::version).await.unwrap(), Some(examine::SCHEMA_VERSION));
    let health = examine::health(&reader).await.unwrap();
    match database {
        DatabaseKind::Sqlite => assert_eq!(health.faults, Some(Vec::new())),
        DatabaseKind::Postgres => {
            assert_eq!((health.is_byte_order, health.refused.len()), (Some(true), 0), "{health:?}");
            assert!(health.now.is_some() && health.database.starts_with("PostgreSQL "));
        }
    }
}

/// An empty database has no schema version.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn empty_database_has_no_version(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(fresh) = empty(database).await else { return };
    if let Database::Sqlite(path) = &fresh.database {
        assert!(open_read_only(&fresh, true).await.is_err(), "opening for reading creates nothing");
        assert!(!path.exists());
        raw(&fresh.database, "create table something (name text)").await;
    }
    let reader = open_read_only(&fresh, false).await.unwrap();
    assert_eq!(reader.read(examine::version).await.unwrap(), None);
}

/// Requests that no runner holds are overdue.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn unleased_requests_are_overdue(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(fresh) = fresh(database).await else { return };
    let store = open(&fresh).await;
    let later = "9000000000000000";
    let with = |id: &str, (due, deadline): (&str, &str), lease: &str, ended: &str, failure: &str| {
        format!(
            "insert into requests (id, type, status, user_id, scope, waiting, step, attempts, due_us, deadline_us, \
             lease_until_us, epoch, created_us, ended_us, failure) values ('{id}', 'STORAGE_CREATE', 'PENDING', \
             'u-000000000000', 'u-000000000000', 0, 0, 0, {due}, {deadline}, {lease}, 0, 1, {ended}, {failure});"
        )
    };
    let request = |id: &str, due: &str, lease: &str, ended: &str| with(id, (due, later), lease, ended, "null");
    let rows = [
        request("r-000000000000", "1", "0", "null"),
        request("r-000000000001", later, "0", "null"),
        request("r-000000000002", "1", later, "null"),
        request("r-000000000003", "1", "0", "5"),
        // One that is being undone and waits for its next try, and one that is past its deadline.
        with("r-000000000004", (later, "1"), "0", "null", "'it did not work'"),
        with("r-000000000005", (later, "1"), "0", "null", "null"),
    ];
    raw(&fresh.database, &rows.concat()).await;
    let overdue = store.read(|tx| examine::overdue(tx, Duration::from_secs(60))).await.unwrap();
    assert_eq!(overdue.requests, ["r-000000000000", "r-000000000005"]);
    assert_eq!(overdue.jobs, Vec::<String>::new());
}

/// The privileges that a database user lacks are reported.
#[tokio::test(flavor = "multi_thread")]
async fn missing_privileges_are_reported() {
    let Some(fresh) = fresh(DatabaseKind::Postgres).await else { return };
    drop(open(&fresh).await);
    let Database::Postgres(url) = &fresh.database else { return };
    let (address, name) = url.rsplit_once('/').unwrap();
    let role = format!("{name}_reader");
    let make = format!(
        "create role {role} login password 'readers'; grant usage on schema public to {role}; \
         grant select on all tables in schema public to {role}; revoke all on requests from {role};"
    );
    raw(&fresh.database, &make).await;
    let host = address.rsplit_once('@').map_or_else(|| address.trim_start_matches("postgres://"), |(_, host)| host);
    let host = host.trim_start_matches("postgresql://");
    let address = Database::Postgres(format!("postgres://{role}:readers@{host}/{name}"));
    let reader =
        Store::open_read_only(&address, false, Arc::new(ManualClock::default()), Arc::new(SeededIds::new(1))).await;
    let reader = reader.unwrap();
    let health = examine::health(&reader).await.unwrap();
    let found = reader.read(examine::version).await;
    raw(&fresh.database, &format!("revoke select on migrations from {role}")).await;
    let hidden = reader.read(examine::version).await;
    drop(reader);
    raw(&fresh.database, &format!("drop owned by {role}; drop role {role};")).await;
    for table in ["clusters", "events", "requests"] {
        assert!(health.refused.iter().any(|refused| refused == table), "{health:?}");
    }
    assert_eq!(found.unwrap(), Some(examine::SCHEMA_VERSION));
    assert!(hidden.is_err(), "a table without read access is not a missing table: {hidden:?}");
}

/// When no other process has the file open, a reader creates no files beside it.
#[tokio::test(flavor = "multi_thread")]
async fn exclusive_reader_creates_no_files() {
    let fresh = fresh(DatabaseKind::Sqlite).await.unwrap();
    let Database::Sqlite(path) = &fresh.database else { return };
    raw(&fresh.database, "pragma journal_mode = wal; create table something (name text); pragma journal_mode = delete; pragma journal_mode = wal;").await;
    let files = || std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    let before = files();
    let reader = open_read_only(&fresh, true).await.unwrap();
    assert_eq!(examine::health(&reader).await.unwrap().faults, Some(Vec::new()));
    assert_eq!(files(), before);
}
