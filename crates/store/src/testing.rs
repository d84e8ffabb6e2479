//! For tests of this crate and of those above it: an empty database on each engine, a clock that is set by hand, and ids
//! from a seed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tarn_model::{Clock, Ids, Time};
use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::Database;

/// An engine to run a test on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum DatabaseKind {
    Sqlite,
    Postgres,
}

/// An empty database that is gone when this is dropped.
pub struct Fresh {
    /// Where it is.
    pub database: Database,
    /// A directory for whatever else the test needs.
    pub dir: TempDir,
    on_server: Option<(String, String)>,
}

/// Makes an empty database; `None`, with a line that says so, where there is no PostgreSQL to test on.
#[allow(clippy::disallowed_methods, reason = "tests are told by the environment where the server is")]
pub async fn fresh(engine: DatabaseKind) -> Option<Fresh> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    match engine {
        DatabaseKind::Sqlite => {
            Some(Fresh { database: Database::Sqlite(dir.path().join("tarn.db")), dir, on_server: None })
        }
        DatabaseKind::Postgres => {
            let Ok(server) = std::env::var("TARN_TEST_POSTGRES") else {
                eprintln!("skipped: TARN_TEST_POSTGRES names no server; `make test` starts one");
                return None;
            };
            let unique = dir.path().file_name().and_then(|name| name.to_str()).expect("tempfile gives plain names");
            let name: String = unique.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
            let name = format!("tarn_{name}_{}", std::process::id());
            let sql = format!("create database {name} template template0 lc_collate 'C' lc_ctype 'C' encoding 'UTF8'");
            on_server(&server, &sql).await;
            let (base, _) = server.rsplit_once('/').expect("an address with a database");
            Some(Fresh { database: Database::Postgres(format!("{base}/{name}")), dir, on_server: Some((server, name)) })
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some((server, name)) = self.on_server.take() {
            // Dropping may happen inside of a runtime, where one cannot wait; a thread of its own can.
            let thread = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(on_server(&server, &format!("drop database if exists {name} with (force)")));
            });
            let _ = thread.join();
        }
    }
}

async fn on_server(server: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await.expect("the test server answers");
    let connection = tokio::spawn(connection);
    client.batch_execute(sql).await.expect("the test server obeys");
    drop(client);
    let _ = connection.await;
}

/// Keeps everybody from writing to a database file while it lives: they wait some seconds, and then it is unavailable.
pub struct Locked(#[allow(dead_code, reason = "the lock lives as long as its connection")] rusqlite::Connection);

impl Locked {
    /// Takes the lock; `None` where the database is no file.
    pub fn new(database: &Database) -> Option<Self> {
        let Database::Sqlite(path) = database else {
            return None;
        };
        let connection = rusqlite::Connection::open(path).expect("the file can be opened");
        connection.execute_batch("begin immediate").expect("nobody else has the lock for long");
        Some(Locked(connection))
    }
}

/// A clock that stands still until it is moved.
pub struct ManualClock(AtomicI64);

impl Default for ManualClock {
    fn default() -> Self {
        ManualClock(AtomicI64::new(1_800_000_000_000_000))
    }
}

impl ManualClock {
    /// Moves the clock on.
    pub fn advance(&self, span: Duration) {
        self.move_to(self.now().after(span));
    }

    /// Moves the clock to a later point.
    pub fn move_to(&self, time: Time) {
        self.0.fetch_max(time.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        // A microsecond passes with every look, as it would: rows made one after the other have an order.
        Time::from_micros(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// Ids from a seed (splitmix64).
pub struct SeededIds(AtomicU64);

impl SeededIds {
    /// The same seed gives the same ids.
    pub fn new(seed: u64) -> Self {
        SeededIds(AtomicU64::new(seed))
    }
}

impl Ids for SeededIds {
    fn bits(&self) -> u64 {
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
