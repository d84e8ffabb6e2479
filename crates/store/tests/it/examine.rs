//! Looking at a database without changing it.

use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;
use tarn_store::testing::{DatabaseKind, Fresh, ManualClock, SeededIds, empty, fresh};
use tarn_store::{Database, Store, examine, installation};

use crate::support::raw;

async fn look(fresh: &Fresh, is_alone: bool) -> tarn_store::Result<Store> {
    Store::look(&fresh.database, is_alone, Arc::new(ManualClock::default()), Arc::new(SeededIds::new(1))).await
}

async fn open(fresh: &Fresh) -> Store {
    Store::open(&fresh.database, Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7))).await.unwrap()
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_look_reads_beside_a_writer_and_writes_nothing(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(fresh) = fresh(engine).await else { return };
    let store = open(&fresh).await;
    let looked = look(&fresh, false).await.unwrap();
    store.write(|tx| installation::remember_once(tx, "key", "value").map(drop)).await.unwrap();
    let seen: tarn_store::Result<_> = looked.read(|tx| installation::get(tx, "key")).await;
    assert_eq!(seen.unwrap().as_deref(), Some("value"));
    let refused = looked.write(|tx| installation::remember_once(tx, "other", "value").map(drop)).await;
    assert!(refused.is_err(), "what only looks cannot write");
    assert_eq!(looked.read(examine::version).await.unwrap(), Some(examine::KNOWN));
    let health = examine::health(&looked).await.unwrap();
    match engine {
        DatabaseKind::Sqlite => assert_eq!(health.faults, Some(Vec::new())),
        DatabaseKind::Postgres => {
            assert_eq!((health.is_byte_order, health.refused.len()), (Some(true), 0), "{health:?}");
            assert!(health.now.is_some() && health.engine.starts_with("PostgreSQL "));
        }
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_has_no_version(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(fresh) = empty(engine).await else { return };
    if let Database::Sqlite(path) = &fresh.database {
        assert!(look(&fresh, true).await.is_err(), "nothing is made by a look");
        assert!(!path.exists());
        raw(&fresh.database, "create table something (name text)").await;
    }
    let looked = look(&fresh, false).await.unwrap();
    assert_eq!(looked.read(examine::version).await.unwrap(), None);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_works_on_is_overdue(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(fresh) = fresh(engine).await else { return };
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
        // One that is being undone, in the pause before its next try, and one whose time is over.
        with("r-000000000004", (later, "1"), "0", "null", "'it did not work'"),
        with("r-000000000005", (later, "1"), "0", "null", "null"),
    ];
    raw(&fresh.database, &rows.concat()).await;
    let overdue = store.read(|tx| examine::overdue(tx, Duration::from_secs(60))).await.unwrap();
    assert_eq!(overdue.requests, ["r-000000000000", "r-000000000005"]);
    assert_eq!(overdue.jobs, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_only_read_is_told_apart() {
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
    let reader = Database::Postgres(format!("postgres://{role}:readers@{host}/{name}"));
    let looked = Store::look(&reader, false, Arc::new(ManualClock::default()), Arc::new(SeededIds::new(1))).await;
    let looked = looked.unwrap();
    let health = examine::health(&looked).await.unwrap();
    let found = looked.read(examine::version).await;
    raw(&fresh.database, &format!("revoke select on migrations from {role}")).await;
    let hidden = looked.read(examine::version).await;
    drop(looked);
    raw(&fresh.database, &format!("drop owned by {role}; drop role {role};")).await;
    for table in ["clusters", "events", "requests"] {
        assert!(health.refused.iter().any(|refused| refused == table), "{health:?}");
    }
    assert_eq!(found.unwrap(), Some(examine::KNOWN));
    assert!(hidden.is_err(), "what may not be read is not what is not there: {hidden:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_else_is_nothing_is_put_beside_the_file() {
    let fresh = fresh(DatabaseKind::Sqlite).await.unwrap();
    let Database::Sqlite(path) = &fresh.database else { return };
    raw(&fresh.database, "pragma journal_mode = wal; create table something (name text); pragma journal_mode = delete; pragma journal_mode = wal;").await;
    let files = || std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    let before = files();
    let looked = look(&fresh, true).await.unwrap();
    assert_eq!(examine::health(&looked).await.unwrap().faults, Some(Vec::new()));
    assert_eq!(files(), before);
}
