//! A world of its own for every test: the engine of `tarn_control::testing`, and the router before it.

use std::ops::Deref;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::response::Parts;
use axum::http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tarn_control::reconcilers;
use tarn_control::runner::Runner;
use tarn_control::testing::{self, Setup};
use tarn_model::capacity::Inventory;
use tarn_server::{App, Front, Limits, router};
pub(crate) use tarn_store::testing::DatabaseKind;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use crate::support::redact::redact;

/// An engine with its router.
pub(crate) struct World {
    base: testing::World,
    pub(crate) router: Router,
    pub(crate) app: App,
    runner: Runner,
}

impl Deref for World {
    type Target = testing::World;

    fn deref(&self) -> &testing::World {
        &self.base
    }
}

/// Calls without a limit.
pub(crate) fn unlimited() -> Limits {
    Limits { per_second: 0, ..Limits::default() }
}

impl World {
    /// A world without a limit on calls. `None` when there is no PostgreSQL to test on.
    pub(crate) async fn open(database: DatabaseKind) -> Option<World> {
        World::with_limits(database, unlimited()).await
    }

    /// A world with limits on calls.
    pub(crate) async fn with_limits(database: DatabaseKind, limits: Limits) -> Option<World> {
        Some(World::on(tarn_store::testing::World::open(database).await?, limits, usual()).await)
    }

    /// A world on SQLite with another engine.
    pub(crate) async fn with_setup(setup: Setup) -> World {
        let store = tarn_store::testing::World::open(DatabaseKind::Sqlite).await.unwrap();
        World::on(store, unlimited(), setup).await
    }

    /// A world on a given store.
    pub(crate) async fn on(store: tarn_store::testing::World, limits: Limits, setup: Setup) -> World {
        let base = testing::World::on(store, setup).await;
        let app = App::new(base.control.clone(), limits, Front::default(), base.ids.clone());
        World { router: router(app.clone()), app, runner: Runner::new(base.control.clone()), base }
    }

    /// Carries out everything that has been accepted.
    pub(crate) async fn settle(&self) {
        self.runner.tick().await.unwrap();
    }

    /// Compares the instances with the database once, as the engine does every few seconds.
    pub(crate) async fn look(&self) {
        reconcilers::instances::tick(&self.control).await.unwrap();
    }

    /// Ends what is open for callers whose access ended, as the engine does all the time, until this is dropped.
    pub(crate) fn watch_access(&self) -> AbortOnDrop {
        let control = self.control.clone();
        AbortOnDrop(tokio::spawn(async move {
            loop {
                let pause = reconcilers::revocations::tick(&control).await.unwrap();
                let _ = tokio::time::timeout(pause, reconcilers::revocations::changed(&control)).await;
            }
        }))
    }

    /// Revokes the newest API key of a user.
    pub(crate) async fn revoke(&self, email: &str) {
        let id = self.id_of(email).await;
        let keys = self.get(&self.admin, &format!("/admin/key/list?user_id={id}")).await;
        let key = keys.body["keys"][0]["key_id"].as_str().unwrap().to_owned();
        assert_eq!(self.delete(&self.admin, &format!("/admin/key/revoke/{key}")).await.status, 200);
    }

    /// Disables a user.
    pub(crate) async fn disable(&self, email: &str) {
        let path = format!("/admin/user/disable/{}", self.id_of(email).await);
        assert_eq!(self.post(&self.admin, &path, json!({})).await.status, 200);
    }

    /// Enables a user again.
    pub(crate) async fn enable(&self, email: &str) {
        let path = format!("/admin/user/enable/{}", self.id_of(email).await);
        assert_eq!(self.post(&self.admin, &path, json!({})).await.status, 200);
    }

    async fn id_of(&self, email: &str) -> String {
        let users = self.get(&self.admin, "/admin/user/list").await.body["users"].clone();
        let user = users.as_array().unwrap().iter().find(|user| user["email"] == email).unwrap();
        user["user_id"].as_str().unwrap().to_owned()
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
        let (parts, text) = self.send(call).await;
        let body: Value = match parts.status.as_u16() {
            204 if text.is_empty() => json!({}),
            _ => serde_json::from_slice(&text).unwrap_or_else(|_| panic!("no JSON: {text:?}")),
        };
        assert!(body.is_object() && parts.headers.contains_key("x-request-id"), "{parts:?} {body}");
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// The status of any call, whatever its body.
    pub(crate) async fn status(&self, call: Call) -> u16 {
        self.send(call).await.0.status.as_u16()
    }

    async fn send(&self, call: Call) -> (Parts, Bytes) {
        let mut request = Request::builder().method(call.method).uri(call.path);
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let response = self.router.clone().oneshot(request.body(Body::from(call.body)).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts, body.collect().await.unwrap().to_bytes())
    }
}

/// A task that ends with this.
pub(crate) struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
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

/// A host of 16 CPUs and 64 GiB, with S3 beside it.
pub(crate) fn usual() -> Setup {
    let plain = Setup::default();
    let (cpu_milli, memory_bytes, storage_bytes) = (16_000, 64 << 30, 1_000_000_000_000);
    let inventory = Inventory { cpu_milli, memory_bytes, storage_bytes, ..plain.inventory };
    Setup { inventory, s3: Some("http://127.0.0.1:7071".to_owned()), ..plain }
}
