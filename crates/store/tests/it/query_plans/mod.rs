//! The plan of every query on SQLite: none reads the whole of a table that grows, unless it is listed here with the reason.

mod source;

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tarn_store::Database;
use tarn_store::testing::{DatabaseKind, World};

use source::sql_texts;

/// Tables whose rows are few: what a host has, and facts about the installation.
const SMALL: [&str; 4] = ["gpus", "host_drains", "installation", "migrations"];

/// Indexes that a query may read as a whole, and what is in them.
const WHOLE_INDEXES: [(&str, &str); 2] = [
    ("clusters_failed", "counted before and after a reboot of the host"),
    ("accounts_closing", "object storage that is being emptied"),
];

/// Files and folders whose queries are not those of an engine at work, and whose they are.
const OTHER_FILES: [(&str, &str); 5] = [
    ("backup.rs", "commands that read everything, some of which only PostgreSQL knows"),
    ("clock.rs", "all deadlines move when the clock of the host jumps, and only a server has another time"),
    ("db", "the databases themselves, and their migrations"),
    ("testing", "tests"),
    ("transfer", "the command that copies a whole database"),
];

/// Queries that read the whole of a table, or stop early in it, by a part of their text; and why they may.
const WHOLE: [(&str, &str); 17] = [
    ("lease_until_us < $1 and (due_us < $1 or (failure is null", "the doctor, for a few overdue requests"),
    ("update jobs set lease_until_us = 0, epoch = epoch + 1 where ended_us", "once, when an engine starts alone"),
    ("update requests set lease_until_us = 0, epoch = epoch + 1 where ended_us", "once, when an engine starts alone"),
    ("from jobs where ended_us is null order by created_us, id", "a restore, which ends all of them"),
    ("select count(*) from requests where ended_us is null", "a restore, which has ended all of them"),
    ("from accounts where legacy_key is not null and closing = 0", "once, when an engine starts"),
    (
        "-promised_gb, -waiting from usage_counters) as d group by scope",
        "counts everything again, at the start and for the doctor",
    ),
    (
        "from ledger_entries union all select account, -amount_micros",
        "counts everything again, at the start and for the doctor",
    ),
    ("join jobs j on j.id = substr(o.key, 1, 14)", "tests, which count everything again"),
    (
        "where u.engine_admin = 1 and u.disabled = 0",
        "stops at the oldest administrator, who is most often the first user",
    ),
    ("select 1 from parts limit 1", "reads one row"),
    ("select scope from requests where waiting = 1 order by scope limit 1", "reads one row"),
    (
        "from requests where waiting = 1 and lease_until_us <= $1 order by created_us, id limit 1",
        "stops behind those in progress",
    ),
    ("select id from requests where waiting = 1 order by created_us, id limit 1", "reads one row"),
    ("select 1 from requests where waiting = 1 limit $1", "stops at the limit"),
    ("from requests where waiting = 1 order by created_us, id limit $1", "stops at the limit"),
    ("select due_us from requests where ended_us is null and lease_until_us <= $1", "stops behind those in progress"),
];

/// Returns the tables that a query reads as a whole, with the indexes by which it does.
fn scans(connection: &Connection, tables: &BTreeSet<String>, sql: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("explain query plan {sql}"))?;
    // Without values for the parameters, as the store prepares it.
    let (mut details, mut found) = (statement.raw_query(), Vec::new());
    while let Some(row) = details.next()? {
        let detail: String = row.get(3)?;
        let Some(scanned) = detail.strip_prefix("SCAN ") else {
            if detail.contains("AUTOMATIC") {
                found.push(detail);
            }
            continue;
        };
        let name = scanned.split_whitespace().next().unwrap_or_default();
        let is_table = |table: &&String| {
            *table == name || sql.contains(&format!("{table} {name}")) || sql.contains(&format!("{table} as {name}"))
        };
        let table = tables.iter().find(is_table);
        let is_allowed = WHOLE_INDEXES.iter().any(|(index, _)| detail.ends_with(&format!(" INDEX {index}")));
        // What is no table is a part of the query itself.
        if table.is_some_and(|table| !SMALL.contains(&table.as_str())) && !is_allowed {
            found.push(detail);
        }
    }
    Ok(found)
}

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    // As the store opens it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).unwrap();
    connection
}

/// No query reads the whole of a table that grows.
#[tokio::test(flavor = "multi_thread")]
async fn no_query_scans_a_table_that_grows() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let Database::Sqlite(path) = &world.fresh.database else { unreachable!("it was asked for") };
    let connection = open(path);
    let mut statement = connection.prepare("select name from sqlite_master where type = 'table'").unwrap();
    let tables: BTreeSet<String> =
        statement.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut faults, mut unused, mut count) = (Vec::new(), BTreeSet::from_iter(WHOLE.map(|(part, _)| part)), 0);
    for (file, sql) in sql_texts(&root) {
        let file = file.strip_prefix(&root).unwrap().display().to_string();
        if OTHER_FILES.iter().any(|(other, _)| file.starts_with(other)) {
            continue;
        }
        count += 1;
        let allowed = WHOLE.iter().find(|(part, _)| sql.contains(part));
        match scans(&connection, &tables, &sql) {
            Ok(found) if found.is_empty() => {}
            Ok(_) if allowed.is_some() => drop(unused.remove(allowed.unwrap().0)),
            Ok(found) => faults.push(format!("{file}: {found:?}\n    {sql}")),
            Err(error) => faults.push(format!("{file}: {error}\n    {sql}")),
        }
    }
    assert!(faults.is_empty(), "{} of {count} queries:\n{}", faults.len(), faults.join("\n"));
    assert!(unused.is_empty(), "these queries read no whole table, or are gone: {unused:?}");
    assert!(count > 300, "only {count} queries were found");
}
