//! A whole database is copied into another one, and every table is the same there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rstest::rstest;
use rusqlite::Connection;
use rusqlite::types::Value;
use tarn_store::testing::{DatabaseKind, Fresh, ManualClock, SeededIds, empty};
use tarn_store::transfer::{Progress, TableSum, sums, transfer};
use tarn_store::{Database, Store, events};

use crate::support::{granted, raw};

/// More than two pages of the copying.
const ROWS: i64 = 450;

async fn open(database: &Database) -> Result<Store, tarn_store::Error> {
    Store::open(database, Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7))).await
}

/// Copies, and returns the sums.
async fn copy(from: &Database, to: &Database) -> Result<Vec<TableSum>, String> {
    let moved = transfer(from, to, &mut |_| ()).await;
    moved.map(|moved| moved.tables).map_err(|failure| failure.to_string())
}

fn file(fresh: &Fresh) -> &Path {
    let Database::Sqlite(path) = &fresh.database else { panic!("not a file") };
    path
}

/// The tables of a file, as the database itself lists them.
fn tables(connection: &Connection) -> Vec<String> {
    let sql = "select name from sqlite_master where type = 'table' order by name";
    connection.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// The columns of a table: name, type, and whether it can be null.
fn columns(connection: &Connection, table: &str) -> Vec<(String, String, bool)> {
    let mut statement =
        connection.prepare("select name, lower(type), \"notnull\" = 0 and pk = 0 from pragma_table_info($1)").unwrap();
    let rows = statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

/// A value that differs from row to row. Some are those that databases treat differently.
fn value(kind: &str, can_be_null: bool, row: i64) -> Value {
    if can_be_null && row % 3 == 0 {
        return Value::Null;
    }
    match (kind, row) {
        ("bigint", 1) => Value::Integer(i64::MAX),
        ("bigint", 2) => Value::Integer(i64::MIN),
        ("bigint", _) => Value::Integer(row - 200),
        ("text", 1) => Value::Text(String::new()),
        ("text", 2) => Value::Text("4711".into()),
        // These sort otherwise in most languages than by their bytes.
        ("text", _) => {
            Value::Text(format!("{}{row} 'a' \\x41 \n", ["b", "B", "ä", "-", "\u{1F600}"][row as usize % 5]))
        }
        ("bytea", 1) => Value::Blob(Vec::new()),
        ("bytea", _) => Value::Blob(vec![0, 0xff, row as u8, (row >> 8) as u8, 0]),
        (other, _) => panic!("the column type {other} is none of the store's"),
    }
}

/// A database whose tables all have rows, with every kind of value. The table of the migrations keeps its own.
async fn filled(rows: i64) -> Fresh {
    let fresh = empty(DatabaseKind::Sqlite).await.unwrap();
    drop(open(&fresh.database).await.unwrap());
    let mut connection = Connection::open(file(&fresh)).unwrap();
    let tx = connection.transaction().unwrap();
    for table in tables(&tx).iter().filter(|table| *table != "migrations") {
        tx.execute_batch(&format!("delete from {table}")).unwrap();
        let columns = columns(&tx, table);
        let places = vec!["?"; columns.len()].join(", ");
        let mut insert = tx.prepare(&format!("insert into {table} values ({places})")).unwrap();
        for row in 0..rows {
            let values = columns.iter().map(|(_, kind, can_be_null)| value(kind, *can_be_null, row));
            insert.execute(rusqlite::params_from_iter(values)).unwrap();
        }
    }
    tx.commit().unwrap();
    fresh
}

/// All rows of all tables, read without the code that is tested.
fn dump(path: &Path) -> Vec<(String, Vec<Vec<Value>>)> {
    let connection = Connection::open(path).unwrap();
    let read = |table: &String| {
        let names: Vec<String> = columns(&connection, table).into_iter().map(|(name, ..)| name).collect();
        let mut statement = connection.prepare(&format!("select {} from {table}", names.join(", "))).unwrap();
        let rows = statement.query_map([], |row| (0..names.len()).map(|at| row.get::<_, Value>(at)).collect());
        let mut rows: Vec<Vec<Value>> = rows.unwrap().collect::<Result<_, _>>().unwrap();
        rows.sort_by_key(|row| format!("{row:?}"));
        rows
    };
    tables(&connection).into_iter().map(|table| (table.clone(), read(&table))).collect()
}

/// Every table has the same rows after a copy to the other database and back.
#[tokio::test(flavor = "multi_thread")]
async fn every_table_is_copied_both_ways() {
    let source = filled(ROWS).await;
    let before = std::fs::read(file(&source)).unwrap();
    let expected = dump(file(&source));
    let Some(between) = empty(DatabaseKind::Postgres).await else { return };
    let (there, back) =
        (copy(&source.database, &between.database).await.unwrap(), empty(DatabaseKind::Sqlite).await.unwrap());
    assert_eq!(copy(&between.database, &back.database).await.unwrap(), there);
    assert_eq!(dump(file(&back)), expected);
    for (database, name) in [(&source, "source"), (&between, "server"), (&back, "file")] {
        assert_eq!(sums(&database.database).await.unwrap(), there, "{name}");
    }
    // No table is left out, and each one had rows to copy.
    assert_eq!(
        there.iter().map(|sum| sum.table.clone()).collect::<Vec<_>>(),
        tables(&Connection::open(file(&source)).unwrap())
    );
    for sum in &there {
        assert!(sum.rows == ROWS as u64 || sum.table == "migrations" && sum.rows > 15, "{sum:?}");
    }
    assert!(std::fs::read(file(&source)).unwrap() == before, "the source was changed");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file(&back).metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

/// The checksum of a table shows a change of any column of any row.
#[tokio::test(flavor = "multi_thread")]
async fn checksum_shows_every_change() {
    let source = filled(5).await;
    let before = sums(&source.database).await.unwrap();
    let connection = Connection::open(file(&source)).unwrap();
    for table in tables(&connection) {
        for (column, kind, _) in columns(&connection, &table) {
            let (change, undo) = match kind.as_str() {
                "bigint" => (format!("{column} - 1000"), format!("{column} + 1000")),
                "text" => (format!("{column} || 'x'"), format!("substr({column}, 1, length({column}) - 1)")),
                _ => ("zeroblob(7)".to_owned(), "x'00ff040000'".to_owned()),
            };
            let last = format!("(select max(rowid) from {table} where {column} is not null)");
            let update = |value| format!("update {table} set {column} = {value} where rowid = {last}");
            assert_eq!(connection.execute(&update(change), []).unwrap(), 1, "{table}.{column}");
            let after = sums(&source.database).await.unwrap();
            let differing: Vec<_> = before.iter().zip(&after).filter(|(one, other)| one != other).collect();
            assert!(matches!(differing[..], [(sum, _)] if sum.table == table), "{table}.{column}: {differing:?}");
            connection.execute(&update(undo), []).unwrap();
        }
    }
    assert_eq!(sums(&source.database).await.unwrap(), before);
}

/// An engine can work on what was copied: events continue after the last one, which on a server is a matter of its only
/// sequence.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn events_continue_after_a_copy(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] kind: DatabaseKind) {
    for number in [0, 7] {
        let source = empty(DatabaseKind::Sqlite).await.unwrap();
        drop(open(&source.database).await.unwrap());
        let insert = format!(
            "with recursive numbers (number) as (select 1 union all select number + 1 from numbers limit {number}) \
             insert into events (number, at_us, actor, scope, object, verb, detail) select number, 1, 'a', 's', 'o', 'v', '{{}}' from numbers where {number} > 0"
        );
        raw(&source.database, &insert).await;
        let Some(target) = empty(kind).await else { return };
        copy(&source.database, &target.database).await.unwrap();
        if let Database::Postgres(url) = &target.database {
            assert_eq!(sequences(url).await, ["event_numbers"], "another sequence has to be set, too");
        }
        let store = open(&target.database).await.unwrap();
        let record = |tx: &mut tarn_store::Tx<'_>| -> Result<i64, tarn_store::Error> {
            tx.record("o-1", granted(1))?;
            events::last_number(tx)
        };
        assert_eq!(store.write(record).await.unwrap(), number + 1);
    }
}

/// Refused: an engine that uses one of the databases, a target with anything in it, and a source of another schema.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn databases_in_use_and_full_targets_are_refused(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] kind: DatabaseKind,
) {
    let Some(used) = empty(kind).await else { return };
    let store = open(&used.database).await.unwrap();
    let other = empty(DatabaseKind::Sqlite).await.unwrap();
    if kind == DatabaseKind::Postgres {
        // The directory lock of the data directory says so for a file.
        let refused = copy(&used.database, &other.database).await.unwrap_err();
        assert!(refused.contains("the old database: an engine") && refused.contains("connected from"), "{refused}");
        assert!(!file(&other).exists());
        let full = filled(ROWS).await;
        let refused = copy(&full.database, &used.database).await.unwrap_err();
        assert!(refused.contains("the new database: an engine"), "{refused}");
    }
    drop(store);
    let full = filled(ROWS).await;
    let before = sums(&used.database).await.unwrap();
    let refused = copy(&full.database, &used.database).await.unwrap_err();
    assert!(
        refused.contains("the new database")
            && (refused.contains("is not empty, it has ") || refused.contains("tarn.db exists")),
        "{refused}"
    );
    assert_eq!(sums(&used.database).await.unwrap(), before, "the refused target was changed");
}

/// An engine does not open a database while it is copied, and does afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn engine_waits_while_a_server_is_copied() {
    let Some(source) = empty(DatabaseKind::Postgres).await else { return };
    drop(open(&source.database).await.unwrap());
    let target = empty(DatabaseKind::Sqlite).await.unwrap();
    let (database, runtime) = (source.database.clone(), tokio::runtime::Handle::current());
    let mut seen = Vec::new();
    let mut report = |_: Progress<'_>| {
        if seen.is_empty() {
            let opened = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(open(&database))).join().unwrap());
            seen.push(opened.err().map(|error| error.to_string()));
        }
    };
    transfer(&source.database, &target.database, &mut report).await.unwrap();
    let refused = seen.pop().flatten().unwrap();
    assert!(refused.contains("tarn admin migrate") && refused.contains("start the engine again"), "{refused}");
    drop(open(&source.database).await.unwrap());
    drop(open(&target.database).await.unwrap());
}

/// A copy whose connection to the old server was lost is not published: an engine may use that database again.
#[tokio::test(flavor = "multi_thread")]
async fn copy_of_a_source_that_was_lost_is_not_published() {
    let Some(source) = empty(DatabaseKind::Postgres).await else { return };
    drop(open(&source.database).await.unwrap());
    let target = empty(DatabaseKind::Sqlite).await.unwrap();
    let (database, runtime) = (source.database.clone(), tokio::runtime::Handle::current());
    let others = "select pg_terminate_backend(pid) from pg_stat_activity \
                  where datname = current_database() and pid <> pg_backend_pid()";
    let mut is_lost = false;
    let mut report = |progress: Progress<'_>| {
        if matches!(progress, Progress::Compared { .. }) && !is_lost {
            is_lost = true;
            std::thread::scope(|scope| scope.spawn(|| runtime.block_on(raw(&database, others))).join().unwrap());
        }
    };
    let refused = transfer(&source.database, &target.database, &mut report).await.unwrap_err().to_string();
    assert!(refused.starts_with("the old database: "), "{refused}");
    assert!(!file(&target).exists());
    copy(&source.database, &target.database).await.unwrap();
}

/// A copy that ends in the middle leaves nothing that an engine would open, and can be started again.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_copy_starts_again(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] kind: DatabaseKind) {
    let source = filled(ROWS).await;
    let Some(target) = empty(kind).await else { return };
    let (from, to) = (source.database.clone(), target.database.clone());
    let task = tokio::spawn(async move {
        let mut stop = |progress: Progress<'_>| {
            assert!(!matches!(progress, Progress::Copied { table: "requests", .. }), "the copying ends here");
        };
        transfer(&from, &to, &mut stop).await.map(drop)
    });
    assert!(task.await.unwrap_err().is_panic());
    if let Database::Sqlite(path) = &target.database {
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        // What `kill -9` leaves is replaced.
        std::fs::write(PathBuf::from(format!("{}.incomplete", path.display())), "the beginning of a copy").unwrap();
    }
    let sums = copy(&source.database, &target.database).await.unwrap();
    assert!(sums.iter().any(|sum| sum.table == "requests" && sum.rows == ROWS as u64));
}

/// A source that this program cannot copy as a whole is refused, and its tables stay as they are.
#[rstest]
#[case("alter table volumes add column colour text", "does not know its column volumes.colour")]
#[case("alter table volumes drop column reason", "lacks the column volumes.reason")]
#[case("delete from migrations where version > 15", "an older program wrote it")]
#[case("alter table migrations drop column hash", "an older program wrote it")]
#[case("insert into migrations (version, hash, program) values (9999, 'x', '9.8.7')", "install Tarn 9.8.7")]
#[case("drop table migrations", "has no tables of Tarn")]
#[tokio::test(flavor = "multi_thread")]
async fn unknown_sources_are_refused(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] kind: DatabaseKind,
    #[case] change: &str,
    #[case] why: &str,
) {
    let Some(source) = empty(kind).await else { return };
    drop(open(&source.database).await.unwrap());
    raw(&source.database, change).await;
    let target = empty(DatabaseKind::Sqlite).await.unwrap();
    let refused = copy(&source.database, &target.database).await.unwrap_err();
    assert!(refused.contains("the old database: ") && refused.contains(why), "{refused}");
    assert_eq!(std::fs::read_dir(file(&target).parent().unwrap()).unwrap().count(), 0);
}

/// A damaged file is refused, not copied in part.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_source_is_refused() {
    let source = filled(ROWS).await;
    // An index whose entries are others than its definition says.
    let damage = "pragma writable_schema = on; update sqlite_master set sql = replace(sql, 'waiting = 1', 'waiting = 2') \
                  where name = 'requests_turns'";
    raw(&source.database, damage).await;
    let Some(target) = empty(DatabaseKind::Postgres).await else { return };
    let refused = copy(&source.database, &target.database).await.unwrap_err();
    assert!(refused.contains("the old database: the file is damaged"), "{refused}");
}

/// Tables that are not of Tarn are named and stay behind.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn foreign_tables_are_named(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] kind: DatabaseKind) {
    let Some(source) = empty(kind).await else { return };
    drop(open(&source.database).await.unwrap());
    raw(&source.database, "create table _replication (position text)").await;
    let target = empty(DatabaseKind::Sqlite).await.unwrap();
    let moved = transfer(&source.database, &target.database, &mut |_| ()).await.unwrap();
    assert_eq!(moved.left_out, ["_replication"]);
}

/// A server that does not sort by bytes is refused.
#[tokio::test(flavor = "multi_thread")]
async fn other_collation_is_refused() {
    let Some(server) = empty(DatabaseKind::Postgres).await else { return };
    let Database::Postgres(url) = &server.database else { return };
    let (base, name) = url.rsplit_once('/').unwrap();
    let other = format!("{name}_other");
    let made = format!(
        "create database {other} template template0 lc_collate 'C' lc_ctype 'C' encoding 'UTF8' locale_provider icu icu_locale 'en'"
    );
    raw(&server.database, &made).await;
    let source = filled(ROWS).await;
    let refused = copy(&source.database, &Database::Postgres(format!("{base}/{other}"))).await.unwrap_err();
    raw(&server.database, &format!("drop database {other} with (force)")).await;
    assert!(refused.contains("the new database: ") && refused.contains("does not sort by bytes"), "{refused}");
}

async fn sequences(url: &str) -> Vec<String> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let rows = client.query("select cast(relname as text) from pg_class where relkind = 'S'", &[]).await.unwrap();
    drop(client);
    let _ = connection.await;
    rows.iter().map(|row| row.get(0)).collect()
}
