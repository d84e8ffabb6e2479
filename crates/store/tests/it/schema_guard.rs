//! A database is opened only if its migrations are those of this program; those of older programs are recognized.

use std::sync::Arc;

use rstest::rstest;
use tarn_store::testing::{DatabaseKind, Fresh, ManualClock, SeededIds, empty, fresh};
use tarn_store::{Database, Error, Store, examine};

use crate::support::raw;

const TABLE: &str = "create table migrations (version bigint primary key);";
const SPINE: &str = include_str!("../../../../migrations/0001_spine.sql");
const MACHINES: &str = include_str!("../../../../migrations/0002_machines.sql");
const VOLUMES: &str = include_str!("../../../../migrations/0003_volumes.sql");
const OBJECTS: &str = include_str!("../../../../migrations/0004_objects.sql");
const JOBS: &str = include_str!("../../../../migrations/0005_jobs.sql");
const GPUS: &str = include_str!("../../../../migrations/0007_gpus.sql");

async fn open(database: &Database) -> Result<Store, Error> {
    Store::open(database, Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7))).await
}

/// The columns and indexes of a SQLite database.
fn names(fresh: &Fresh) -> Vec<String> {
    let Database::Sqlite(path) = &fresh.database else { return Vec::new() };
    let sql = "select t.name || '.' || c.name from sqlite_master t, pragma_table_info(t.name) c where t.type = 'table' \
               union all select name || coalesce(sql, '') from sqlite_master where type = 'index' order by 1";
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Opens a database that an older program wrote, twice: the second time its migrations have hashes. Its tables and
/// indexes are then those of a new one.
async fn opens_and_equals_new(database: DatabaseKind, older: &[&str]) {
    let Some(upgraded) = empty(database).await else { return };
    raw(&upgraded.database, &older.concat()).await;
    drop(open(&upgraded.database).await.unwrap());
    let store = open(&upgraded.database).await.unwrap();
    assert_eq!(store.read(examine::version).await.unwrap(), Some(examine::SCHEMA_VERSION));
    drop(store);
    let new = fresh(database).await.unwrap();
    drop(open(&new.database).await.unwrap());
    assert_eq!(names(&upgraded), names(&new));
}

/// Databases that the earlier texts of two migrations made are brought to the later texts.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn earlier_texts_are_adopted(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(include_str!("../earlier/0001_first.sql"), include_str!("../earlier/0001_second.sql"))] text: &str,
    #[values(false, true)] with_later: bool,
) {
    let later = [MACHINES, VOLUMES, OBJECTS, "insert into migrations (version) values (2), (3), (4);"];
    let mut older = vec![TABLE, text, "insert into migrations (version) values (1);"];
    older.extend(later.iter().filter(|_| with_later));
    opens_and_equals_new(database, &older).await;
}

/// A database that lacks what a later edit of the last migration added gets it.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn earlier_text_of_quotas_is_adopted(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(before) = empty(database).await else { return };
    drop(open(&before.database).await.unwrap());
    let first = include_str!("../earlier/0015_first.sql");
    assert!(!first.contains("ssh_key_proofs_of_scope"), "what the earlier text lacks is removed below");
    let older = "drop index ssh_key_proofs_of_scope; alter table migrations drop column hash; \
                 alter table migrations drop column program;";
    raw(&before.database, older).await;
    drop(open(&before.database).await.unwrap());
    raw(&before.database, "drop index ssh_key_proofs_of_scope;").await;
}

/// A program of a branch ran the seventh migration as its sixth. The real sixth one runs when the database is opened.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn migrations_in_another_order_are_adopted(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let rows = "insert into migrations (version) values (1), (2), (3), (4), (5), (6);";
    opens_and_equals_new(database, &[TABLE, SPINE, MACHINES, VOLUMES, OBJECTS, JOBS, GPUS, rows]).await;
}

/// A database whose tables were changed by hand is refused, and stays as it is.
#[rstest]
#[case("alter table volumes drop column size_gb", "ran in part, without volumes.size_gb")]
#[case("insert into migrations (version) values (3)", "3 migrations are recorded, and the tables show 2")]
#[tokio::test(flavor = "multi_thread")]
async fn changed_tables_are_refused(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[case] change: &str,
    #[case] why: &str,
) {
    let Some(changed) = empty(database).await else { return };
    let rows = "insert into migrations (version) values (1), (2);";
    raw(&changed.database, &[TABLE, SPINE, MACHINES, rows, change].concat()).await;
    let before = names(&changed);
    let refused = open(&changed.database).await.err().unwrap();
    assert!(refused.to_string().contains(why) && refused.to_string().contains("restore a backup"), "{refused}");
    assert!(matches!(refused, Error::Schema(_)), "{refused:?}");
    assert_eq!(names(&changed), before);
}

/// A migration that fails leaves the database as it was, with none of those before it: when what was in its way is gone,
/// the database is upgraded.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn failed_migration_changes_nothing(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(older) = empty(database).await else { return };
    let rows = "insert into migrations (version) values (1), (2);";
    let in_the_way = "create view bucket_settings as select 1 as one;";
    raw(&older.database, &[TABLE, SPINE, MACHINES, rows, in_the_way].concat()).await;
    let before = names(&older);
    assert!(open(&older.database).await.is_err());
    assert_eq!(names(&older), before);
    raw(&older.database, "drop view bucket_settings").await;
    drop(open(&older.database).await.unwrap());
}

/// A database in which another text ran under the number of a migration is refused, as is one of a newer program.
#[rstest]
#[case("update migrations set hash = 'another', program = '0.1.9' where version = 3", "run by Tarn 0.1.9")]
#[case("insert into migrations (version, hash, program) values (9999, 'x', '9.8.7')", "install Tarn 9.8.7")]
#[case("insert into migrations (version) values (9999)", "install a newer program")]
#[tokio::test(flavor = "multi_thread")]
async fn foreign_migrations_are_refused(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[case] change: &str,
    #[case] why: &str,
) {
    let Some(foreign) = fresh(database).await else { return };
    drop(open(&foreign.database).await.unwrap());
    raw(&foreign.database, change).await;
    let refused = open(&foreign.database).await.err().unwrap();
    assert!(refused.to_string().contains(why), "{refused}");
    let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7)));
    let reader = Store::open_read_only(&foreign.database, true, clock, ids).await.unwrap();
    assert_eq!(reader.read(examine::refusal).await.unwrap(), Some(refused.to_string()));
}
