//! A world of its own for every test: a database, a fake driver, a control plane, its runner and the router before
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tarn_control::runner::Runner;
use tarn_control::{Control, Parts, Secrets, Settings, SshEndpoint, bootstrap, reconcilers};
use tarn_driver::Driver;
use tarn_driver::fake::{self, FakeDriver};
use tarn_model::capacity::{Gpu, Inventory};
use tarn_model::catalogue::{Catalogue, Prices};
use tarn_model::ids::fresh_api_key;
use tarn_model::{Clock, Ids, Time};
use tarn_objects::Objects;
use tarn_server::{App, Front, Limits, router};
use tarn_store::{Database, Store};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::support::redact::redact;

/// The databases that every test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    Sqlite,
    Postgres,
}

/// A control plane with its router, its database and a fake driver.
pub(crate) struct World {
    pub(crate) router: Router,
    pub(crate) app: App,
    pub(crate) control: Control,
    /// A second handle on the database, for what the instances would write there.
    pub(crate) store: Store,
    runner: Runner,
    /// A second handle on the same fake driver, for what happens there without a call.
    pub(crate) fake: FakeDriver,
    /// The key of the first administrator.
    pub(crate) admin: String,
    _directory: TempDir,
}

impl World {
    /// A world without a limit on calls. `None` when there is no PostgreSQL to test on.
    pub(crate) async fn open(database: DatabaseKind) -> Option<World> {
        World::with_limits(database, Limits { per_second: 0, burst: 0 }).await
    }

    /// A world with limits on calls.
    pub(crate) async fn with_limits(database: DatabaseKind, limits: Limits) -> Option<World> {
        let database = match database {
            DatabaseKind::Sqlite => None,
            DatabaseKind::Postgres => Some(Database::Postgres(fresh_postgres().await?)),
        };
        Some(World::on(database, limits).await)
    }

    /// A world on an existing database, or on its own file.
    pub(crate) async fn on(database: Option<Database>, limits: Limits) -> World {
        World::with_driver(database, limits, None, |driver| Arc::new(driver)).await
    }

    /// A world with an SSH endpoint, on a driver that may do more than the fake one.
    pub(crate) async fn with_driver(
        database: Option<Database>,
        limits: Limits,
        ssh: Option<SshEndpoint>,
        wrap: impl FnOnce(FakeDriver) -> Arc<dyn Driver>,
    ) -> World {
        let directory = TempDir::new().unwrap();
        let (clock, ids) = (Arc::new(Ticking::default()), Arc::new(Chance::default()));
        let database = database.unwrap_or_else(|| Database::Sqlite(directory.path().join("tarn.db")));
        let store = Store::open(&database, clock.clone(), ids.clone()).await.unwrap();
        let admin = fresh_api_key(&*ids);
        assert!(bootstrap::make_admin(&store, admin.clone()).await.unwrap());
        let (inventory, prices) = (test_inventory(), Prices::default());
        let open =
            || FakeDriver::open(directory.path().join("fake"), inventory.clone(), fake::Settings::default()).unwrap();
        let (driver, fake) = (open(), open());
        let catalogue = Catalogue::derived(&inventory, &prices);
        let (driver, settings, secrets) = (wrap(driver), Settings::default(), Secrets::new([7; 32]));
        let objects = objects(&directory, &store, &secrets, (clock.clone(), ids.clone()));
        let s3 = Some("http://127.0.0.1:7071".to_owned());
        let parts = Parts {
            store: store.clone(),
            driver,
            inventory,
            catalogue,
            prices,
            settings,
            secrets,
            ssh,
            objects,
            s3,
            clock,
            ids: ids.clone(),
        };
        let control = Control::new(parts);
        let app = App::new(control.clone(), limits, Front::default(), ids);
        World {
            router: router(app.clone()),
            app,
            runner: Runner::new(control.clone()),
            control,
            store,
            fake,
            admin,
            _directory: directory,
        }
    }

    /// Carries out everything that has been accepted.
    pub(crate) async fn settle(&self) {
        self.runner.tick().await.unwrap();
    }

    /// Compares the instances with the database once, as the engine does every few seconds.
    pub(crate) async fn look(&self) {
        reconcilers::instances::tick(&self.control).await.unwrap();
    }

    /// Makes a user and returns the key.
    pub(crate) async fn user(&self, email: &str, org: Option<&str>) -> String {
        let made = self.post(&self.admin, "/admin/user/create", json!({ "email": email, "org_name": org })).await;
        assert_eq!(made.status, 200, "{made:?}");
        made.body["api_key"].as_str().unwrap().to_owned()
    }

    /// A cluster that runs.
    pub(crate) async fn cluster(&self, key: &str, name: &str) -> String {
        let body = json!({ "instance_type": "1xCPU", "tp_cluster_name": name });
        let made = self.post(key, "/cluster/create", body).await;
        assert_eq!(made.status, 202, "{made:?}");
        self.settle().await;
        made.text("cluster_id")
    }

    /// A volume that is ready.
    pub(crate) async fn volume(&self, key: &str, name: &str) -> String {
        let made = self.post(key, "/storage/create", json!({ "size": 10, "name": name })).await;
        assert_eq!(made.status, 202, "{made:?}");
        self.settle().await;
        made.text("storage_id")
    }

    pub(crate) async fn get(&self, key: &str, path: &str) -> Answer {
        self.call(Call::new(Method::GET, path).key(key)).await
    }

    pub(crate) async fn delete(&self, key: &str, path: &str) -> Answer {
        self.call(Call::new(Method::DELETE, path).key(key)).await
    }

    pub(crate) async fn post(&self, key: &str, path: &str, body: Value) -> Answer {
        self.call(Call::new(Method::POST, path).key(key).json(&body)).await
    }

    pub(crate) async fn put(&self, key: &str, path: &str) -> Answer {
        self.call(Call::new(Method::PUT, path).key(key)).await
    }

    pub(crate) async fn patch(&self, key: &str, path: &str, body: Value) -> Answer {
        self.call(Call::new(Method::PATCH, path).key(key).json(&body)).await
    }

    /// Any call. Every response except a document must be a JSON object with the id of the call, or nothing at all
    /// where the status requires that.
    pub(crate) async fn call(&self, call: Call) -> Answer {
        let mut request = Request::builder().method(call.method).uri(call.path);
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let response = self.router.clone().oneshot(request.body(Body::from(call.body)).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        let body: Value = match parts.status.as_u16() {
            204 if text.is_empty() => json!({}),
            _ => serde_json::from_slice(&text).unwrap_or_else(|_| panic!("no JSON: {text:?}")),
        };
        assert!(body.is_object() && parts.headers.contains_key("x-request-id"), "{parts:?} {body}");
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }
}

/// A call that is being put together.
pub(crate) struct Call {
    method: Method,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Call {
    pub(crate) fn new(method: Method, path: &str) -> Self {
        let headers = vec![("content-type".to_owned(), b"application/json".to_vec())];
        Call { method, path: path.to_owned(), headers, body: Vec::new() }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("authorization", format!("Bearer {key}").as_bytes())
    }

    pub(crate) fn header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.to_owned(), value.to_vec()));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.raw(body.to_string().as_bytes())
    }

    pub(crate) fn raw(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// A field that is a text.
    pub(crate) fn text(&self, field: &str) -> String {
        self.body[field].as_str().unwrap_or_else(|| panic!("no text {field} in {self:?}")).to_owned()
    }

    /// The message, for tests that look at what a person sees.
    pub(crate) fn message(&self) -> String {
        self.text("message")
    }

    /// Status and code of a refusal.
    pub(crate) fn refusal(&self) -> (u16, String) {
        assert!(self.status >= 400, "{self:?}");
        (self.status, self.text("code"))
    }

    /// The body with the same ids and times in every run.
    pub(crate) fn redacted(&self) -> Value {
        redact(&self.body)
    }
}

fn test_inventory() -> Inventory {
    let gpu = |n: u32| Gpu { id: format!("gpu-{n}"), model: "H100".to_owned(), simulated: true };
    Inventory {
        cpu_milli: 16_000,
        memory_bytes: 64 << 30,
        gpus: (0..8).map(gpu).collect(),
        storage_bytes: 1_000_000_000_000,
    }
}

fn objects(
    directory: &TempDir,
    store: &Store,
    secrets: &Secrets,
    (clock, ids): (Arc<Ticking>, Arc<Chance>),
) -> Objects {
    let (directory, settings) = (directory.path().join("objects"), tarn_objects::Settings::default());
    let secret = secrets.object_storage_key();
    Objects::open(tarn_objects::Components { store: store.clone(), directory, secret, settings, clock, ids }).unwrap()
}

/// A clock that advances by a millisecond with every read, so that no two events have the same time.
struct Ticking(AtomicI64);

impl Default for Ticking {
    fn default() -> Self {
        Ticking(AtomicI64::new(1_800_000_000_000_000))
    }
}

impl Clock for Ticking {
    fn now(&self) -> Time {
        Time::from_micros(self.0.fetch_add(1000, Ordering::Relaxed))
    }
}

/// Bits that differ on every call.
#[derive(Default)]
struct Chance(AtomicU64);

impl Ids for Chance {
    fn bits(&self) -> u64 {
        let mut bits = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

/// A new, empty database on the server that the environment names.
#[allow(clippy::disallowed_methods)]
pub(crate) async fn fresh_postgres() -> Option<String> {
    let Ok(server) = std::env::var("TARN_TEST_POSTGRES") else {
        eprintln!("skipped: TARN_TEST_POSTGRES is not set");
        return None;
    };
    let name = format!("tarn_http_{:016x}", rand::random::<u64>());
    let sql = format!("create database {name} template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C'");
    let (client, connection) = tokio_postgres::connect(&server, tokio_postgres::NoTls).await.unwrap();
    let talking = tokio::spawn(connection);
    client.batch_execute(&sql).await.unwrap();
    drop(client);
    talking.await.unwrap().unwrap();
    let (host, _) = server.rsplit_once('/').expect("the address names a database");
    Some(format!("{host}/{name}"))
}
