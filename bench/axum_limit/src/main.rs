//! The limit: bare axum and rusqlite doing the least that the routes could do, with the tenant found in memory.
//!
//! Usage: `axum_limit PORT DATABASE WORKERS`; `SYNC=FULL` in the environment makes every insert reach the disk.
//!
//! - `GET /db/{id}` is one row by its index,
//! - `GET /list` is the tenant's newest 20 rows,
//! - `POST /insert` is one row and one commit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use rusqlite::{Connection, Row, params};
use sha2::{Digest, Sha256};

const TENANTS: i64 = 1000;

#[derive(Clone)]
struct App {
    tenants: Arc<HashMap<[u8; 32], i64>>,
    database: Arc<String>,
    writer: Arc<Mutex<Connection>>,
}

thread_local! {
    // One reader for each worker thread: no lock and no pool between a request and its row.
    static READER: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, port, database, workers] = arguments.as_slice() else {
        panic!("usage: axum_limit PORT DATABASE WORKERS");
    };
    let tenants = (0..TENANTS).map(|tenant| (hash(&format!("token-{tenant}")), tenant)).collect();
    let app = App {
        tenants: Arc::new(tenants),
        database: Arc::new(database.clone()),
        writer: Arc::new(Mutex::new(open(database))),
    };
    let routes = Router::new()
        .route("/db/{id}", get(one))
        .route("/list", get(list))
        .route("/insert", post(insert))
        .with_state(app);
    let workers = workers.parse().expect("WORKERS is a number");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    runtime.expect("the runtime starts").block_on(async move {
        let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await.expect("the port is free");
        axum::serve(listener, routes).await.expect("the server runs");
    });
}

async fn one(State(app): State<App>, Path(id): Path<i64>, headers: HeaderMap) -> Response {
    let Some(tenant) = tenant(&app, &headers) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    read(&app.database, |connection| {
        let text = "select id,name,status,created from clusters where id=?1 and user_id=?2";
        let mut query = connection.prepare_cached(text).expect("the table exists");
        match query.query_row(params![id, tenant], cluster) {
            Ok(found) => json(found.to_string()),
            Err(_) => StatusCode::NOT_FOUND.into_response(),
        }
    })
}

async fn list(State(app): State<App>, headers: HeaderMap) -> Response {
    let Some(tenant) = tenant(&app, &headers) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    read(&app.database, |connection| {
        let text = "select id,name,status,created from clusters where user_id=?1 order by id desc limit 20";
        let mut query = connection.prepare_cached(text).expect("the table exists");
        let rows = query.query_map(params![tenant], cluster).expect("the query runs");
        let found: Vec<_> = rows.map(|row| row.expect("the row is whole")).collect();
        json(serde_json::to_string(&found).expect("it is JSON already"))
    })
}

async fn insert(State(app): State<App>, headers: HeaderMap) -> Response {
    let Some(tenant) = tenant(&app, &headers) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let id = {
        let connection = app.writer.lock().expect("no writer panics");
        let text = "insert into clusters(user_id,name,status,created) values(?1,'bench','PENDING','2026-01-01')";
        let mut statement = connection.prepare_cached(text).expect("the table exists");
        statement.execute(params![tenant]).expect("the row is stored");
        connection.last_insert_rowid()
    };
    json(format!("{{\"id\":{id}}}"))
}

fn tenant(app: &App, headers: &HeaderMap) -> Option<i64> {
    let token = headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")?;
    app.tenants.get(&hash(token)).copied()
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn open(database: &str) -> Connection {
    let sync = std::env::var("SYNC").unwrap_or("NORMAL".into());
    let connection = Connection::open(database).expect("the database opens");
    let settings = format!("pragma journal_mode=wal; pragma synchronous={sync}; pragma busy_timeout=5000;");
    connection.execute_batch(&settings).expect("SQLite takes the settings");
    connection
}

fn read<R>(database: &str, query: impl FnOnce(&Connection) -> R) -> R {
    READER.with_borrow_mut(|reader| query(reader.get_or_insert_with(|| open(database))))
}

fn cluster(row: &Row<'_>) -> rusqlite::Result<serde_json::Value> {
    Ok(serde_json::json!({
        "id": row.get::<_, i64>(0)?,
        "name": row.get::<_, String>(1)?,
        "status": row.get::<_, String>(2)?,
        "created": row.get::<_, String>(3)?,
    }))
}

fn json(body: String) -> Response {
    ([("content-type", "application/json")], body).into_response()
}
