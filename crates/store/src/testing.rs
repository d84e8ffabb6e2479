//! For tests of this crate and of the crates above it: a database of each kind, and the world that every test begins with.

mod others;
mod proxy;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tarn_model::ids::{OrgId, UserId};
pub use tarn_model::testing::{ManualClock, SeededIds};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::db::{migrations, params};
use crate::{Database, Result, Store, Tx};
pub use others::add_others;
pub use proxy::{Held, Proxy};

/// The databases that every test of the store and of the crates above it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    Sqlite,
    Postgres,
}

/// A store on a database of its own, with a clock and ids that the test sets. The worlds of the crates above contain it.
pub struct World {
    pub store: Store,
    pub clock: Arc<ManualClock>,
    pub ids: Arc<SeededIds>,
    pub fresh: Fresh,
}

impl World {
    /// A world without rows. `None` where there is no PostgreSQL to test on.
    pub async fn open(kind: DatabaseKind) -> Option<Self> {
        Some(World::on(fresh(kind).await?).await)
    }

    /// A world on a given database.
    pub async fn on(fresh: Fresh) -> Self {
        let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(7)));
        let store = Store::open(&fresh.database, clock.clone(), ids.clone()).await.expect("the database opens");
        World { store, clock, ids, fresh }
    }
}

/// Gives an organization a legacy key, as an older installation has it.
pub fn set_legacy_key(tx: &mut Tx<'_>, org: &OrgId, key: &str) -> Result<()> {
    tx.execute_guarded("update accounts set legacy_key = $1 where org_id = $2", &params![key, org])
}

/// Moves a user to another organization, or to none.
pub fn move_user(tx: &mut Tx<'_>, user: &UserId, org: Option<&OrgId>) -> Result<()> {
    tx.execute_guarded("update users set org_id = $1 where id = $2", &params![org.cloned(), user])
}

/// Hides the tables whose rows are more the more an organization has, so that every statement fails that reads one.
pub fn hide_tables_of_what_exists(tx: &mut Tx<'_>) -> Result<()> {
    for sql in [
        "alter table clusters rename to hidden_clusters",
        "alter table instances rename to hidden_instances",
        "alter table volumes rename to hidden_volumes",
        "alter table requests rename to hidden_requests",
        "alter table jobs rename to hidden_jobs",
        "alter table objects rename to hidden_objects",
        "alter table ledger_entries rename to hidden_entries",
    ] {
        tx.run(sql, &[])?;
    }
    Ok(())
}

/// A database that is dropped with this value.
pub struct Fresh {
    pub database: Database,
    /// A directory for other files of the test.
    pub dir: TempDir,
    on_server: Option<(String, String)>,
}

/// Creates a database without rows. On PostgreSQL it has its tables already, because running the migrations takes longer than
/// most tests do. Returns `None`, and prints why, where there is no PostgreSQL to test on.
pub async fn fresh(kind: DatabaseKind) -> Option<Fresh> {
    create(kind, Schema::Newest).await
}

/// Creates a database without tables.
pub async fn empty(kind: DatabaseKind) -> Option<Fresh> {
    create(kind, Schema::None).await
}

#[derive(Clone, Copy)]
enum Schema {
    Newest,
    None,
}

#[allow(clippy::disallowed_methods, reason = "the environment names the test server")]
async fn create(kind: DatabaseKind, schema: Schema) -> Option<Fresh> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = match kind {
        DatabaseKind::Sqlite => {
            return Some(Fresh { database: Database::Sqlite(dir.path().join("tarn.db")), dir, on_server: None });
        }
        DatabaseKind::Postgres => std::env::var("TARN_TEST_POSTGRES"),
    };
    let Ok(server) = server else {
        eprintln!("skipped: TARN_TEST_POSTGRES names no server; `make test` starts one");
        return None;
    };
    let unique = dir.path().file_name().and_then(|name| name.to_str()).expect("tempfile gives plain names");
    let name: String = unique.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let name = format!("tarn_{name}_{}", std::process::id());
    match schema {
        Schema::Newest => on_server(&server, &[&copy_of(&template(&server).await, &name)]).await,
        Schema::None => on_server(&server, &[&without_tables(&name)]).await,
    }
    Some(Fresh { database: database_on(&server, &name), dir, on_server: Some((server, name)) })
}

/// The name of a database on the server that holds the newest tables and no rows. The first test to ask creates it, the others
/// wait for it. It is named after the migrations, so that a server that outlives a test run never holds an old one.
async fn template(server: &str) -> String {
    let mut hasher = DefaultHasher::new();
    migrations::ALL.hash(&mut hasher);
    let name = format!("tarn_template_{:016x}", hasher.finish());
    let (client, connection) = connect(server).await;
    let exists = async || {
        let found = client.query("select 1 from pg_database where datname = $1", &[&name]).await;
        !found.expect("the test server lists its databases").is_empty()
    };
    if !exists().await {
        // The lock ends with the connection.
        client.batch_execute("select pg_advisory_lock(7070)").await.expect("the test server locks");
        if !exists().await {
            // Under its own name only once it is complete: a test that is killed here must not leave a template without tables.
            let unfinished = format!("{name}_unfinished");
            on_server(server, &[&drop_database(&unfinished), &without_tables(&unfinished)]).await;
            let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(0)));
            let store = Store::open(&database_on(server, &unfinished), clock, ids).await.expect("the migrations run");
            drop(store);
            // Nothing is connected any more, or will be: a database can be copied only then.
            let disconnect =
                format!("select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = '{unfinished}'");
            on_server(server, &[&disconnect, &format!("alter database {unfinished} rename to {name}")]).await;
        }
    }
    drop(client);
    let _ = connection.await;
    name
}

fn database_on(server: &str, name: &str) -> Database {
    let (base, _) = server.rsplit_once('/').expect("an address with a database");
    Database::Postgres(format!("{base}/{name}"))
}

fn copy_of(template: &str, name: &str) -> String {
    format!("create database {name} template {template}")
}

fn without_tables(name: &str) -> String {
    format!("create database {name} template template0 lc_collate 'C' lc_ctype 'C' encoding 'UTF8'")
}

fn drop_database(name: &str) -> String {
    format!("drop database if exists {name} with (force)")
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some((server, name)) = self.on_server.take() {
            // A destructor may run inside of a runtime, where it must not block on a future; a thread of its own may.
            let thread = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(on_server(&server, &[&drop_database(&name)]));
            });
            let _ = thread.join();
        }
    }
}

async fn connect(server: &str) -> (Client, JoinHandle<()>) {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await.expect("the test server answers");
    (client, tokio::spawn(async { drop(connection.await) }))
}

/// Runs commands one by one: databases cannot be created or dropped inside of a transaction.
async fn on_server(server: &str, commands: &[&str]) {
    let (client, connection) = connect(server).await;
    for command in commands {
        client.batch_execute(command).await.expect("the test server runs the command");
    }
    drop(client);
    let _ = connection.await;
}

/// Keeps a database file locked while it lives: writers wait some seconds, and then report it as unavailable.
pub struct Locked(#[allow(dead_code, reason = "the lock lives as long as its connection")] rusqlite::Connection);

impl Locked {
    /// Takes the lock; returns `None` when the database is not a file.
    pub fn new(database: &Database) -> Option<Self> {
        let Database::Sqlite(path) = database else {
            return None;
        };
        let connection = rusqlite::Connection::open(path).expect("the file can be opened");
        connection.execute_batch("begin immediate").expect("no other writer keeps the lock for long");
        Some(Locked(connection))
    }
}
