//! What every refusal has in common, and the refusals of the layers in front of the endpoints.

use axum::http::Method;
use serde_json::json;
use tarn_server::Limits;
use tarn_store::Database;
use tarn_store::testing::fresh;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::harness::{Answer, Call, DatabaseKind, World, usual};

/// Every refusal is an object with four fields.
#[tokio::test(flavor = "multi_thread")]
async fn refusal_body_has_four_fields() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let get = |path: &str| Call::new(Method::GET, path).key(&world.admin);
    let cases = [
        (get("/nowhere"), 404, "unknown_route"),
        (get("/"), 404, "unknown_route"),
        (get("//cluster/list"), 404, "unknown_route"),
        (get("/cluster/create"), 405, "wrong_method"),
        (get("/storage/s-000000000000"), 405, "wrong_method"),
        (Call::new(Method::OPTIONS, "/healthz"), 405, "wrong_method"),
        (get("/cluster/info/nothing"), 404, "not_found"),
        (get("/storage/info/nothing"), 400, "invalid_id"),
        (Call::new(Method::GET, "/me"), 401, "unauthenticated"),
        (get("/cluster/list?limit=x"), 422, "validation_error"),
    ];
    for (call, status, code) in cases {
        let refused = world.call(call).await;
        assert_eq!(refused.refusal(), (status, code.to_owned()));
        let fields: Vec<_> = refused.body.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["code", "detail", "message", "request_id"]);
        assert_eq!(refused.text("request_id").as_bytes(), refused.headers["x-request-id"].as_bytes());
        assert_eq!(refused.headers["content-type"], "application/json");
        assert_eq!(refused.headers.contains_key("www-authenticate"), status == 401);
        if status != 422 {
            assert_eq!(refused.body["detail"], refused.body["message"]);
        }
    }
}

/// The verbs of clusters and volumes are no names: a method that their paths do not take is refused, with those that
/// they take, also where a name has to follow the verb.
#[tokio::test(flavor = "multi_thread")]
async fn verbs_are_no_names() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    for (path, allowed) in [
        ("/cluster/create", "POST"),
        ("/cluster/list", "GET,HEAD"),
        ("/cluster/quote", "GET,HEAD"),
        ("/cluster/types", "GET,HEAD"),
        ("/cluster/info", "GET,HEAD"),
        ("/cluster/edit", "PATCH"),
        ("/cluster/restart", "POST"),
        ("/cluster/operations", "GET,HEAD"),
        ("/storage/create", "POST"),
        ("/storage/list", "GET,HEAD"),
        ("/storage/quote", "GET,HEAD"),
        ("/storage/attach", "POST"),
        ("/storage/detach", "POST"),
        ("/storage/info", "GET,HEAD"),
        ("/storage/edit", "PATCH"),
    ] {
        let refused = world.call(Call::new(Method::DELETE, path).key(&world.admin)).await;
        assert_eq!(refused.refusal(), (405, "wrong_method".to_owned()), "{path}");
        assert_eq!(refused.headers["allow"], allowed, "{path}");
    }
    let refused = world.get(&world.admin, "/cluster/info").await;
    assert_eq!(refused.refusal(), (404, "unknown_route".to_owned()));
    assert!(refused.message().contains("needs a name or an id at its end"), "{}", refused.message());
}

/// A GET with a body is refused; an empty body counts as none.
#[tokio::test(flavor = "multi_thread")]
async fn get_with_body_is_refused() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let get = |body: &[u8]| world.call(Call::new(Method::GET, "/cluster/list").key(&world.admin).raw(body));
    assert_eq!(get(b"").await.status, 200);
    for body in [&b"{"[..], b"{}", b"\xff", &[b'x'; 2 << 20]] {
        assert_eq!(get(body).await.refusal(), (400, "unexpected_body".to_owned()));
    }
}

/// Each key has its own rate limit.
#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_is_per_key() {
    let limits = Limits { per_second: 1, burst: 3, ..Limits::default() };
    let world = World::with_limits(DatabaseKind::Sqlite, limits).await.unwrap();
    let other = world.user("ada@example.org", None).await;
    assert_eq!(world.get(&world.admin, "/me").await.status, 200);
    assert_eq!(world.get(&world.admin, "/me").await.status, 200);
    let refused = until_refused(&world).await;
    assert_eq!(refused.refusal(), (429, "rate_limited".to_owned()));
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(world.get(&other, "/me").await.status, 200, "another key has its own bucket");
    assert_eq!(world.call(Call::new(Method::GET, "/healthz")).await.status, 200);
    // A new bucket would be full. On a busy host there may be a call in the old one again by the time that it is
    // asked for.
    for _ in 0..100 {
        until_refused(&world).await;
        world.app.forget_idle();
        if world.get(&world.admin, "/me").await.status == 429 {
            return;
        }
    }
    panic!("a bucket that is not full is forgotten");
}

/// Calls until it is too often. How often that is depends on how long the calls take: the bucket fills meanwhile.
async fn until_refused(world: &World) -> Answer {
    for _ in 0..20 {
        let answer = world.get(&world.admin, "/me").await;
        if answer.status != 200 {
            return answer;
        }
    }
    panic!("there is no limit");
}

/// The health routes respond.
#[tokio::test(flavor = "multi_thread")]
async fn health_routes_answer() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let answer = world.call(Call::new(Method::GET, "/healthz")).await;
    assert_eq!((answer.status, answer.body), (200, json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") })));
    let stock = json!({
        "package_version": "0.0.9",
        "uname": ["Linux", "laptop", "6.1", "#1 SMP", "x86_64", ""],
        "python_version": "3.11.2",
        "python_implementation": "CPython",
        "python_compiler": "GCC 12.2.0",
        "python_build": ["main", "Mar 13 2023"],
    });
    for body in [stock, json!({})] {
        let answer = world.post(&world.admin, "/health", body).await;
        assert_eq!((answer.status, answer.body), (200, json!({ "message": null })));
    }
    assert_eq!(world.post(&world.admin, "/health", json!({ "uname": "Linux" })).await.status, 422);
}

/// An older version of the client is told how to upgrade. Every version prints the message and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn older_client_is_told_to_upgrade() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let answer = world.post(&world.admin, "/health", json!({ "package_version": "0.0.6" })).await;
    assert_eq!(answer.status, 200);
    let message = answer.message();
    assert!(message.contains("tp 0.0.6 is too old") && message.contains("0.0.7 or newer"), "{message}");
    assert!(message.ends_with("pip install --upgrade tensorpool"), "{message}");
}

/// The client of versions 0.0.7 and 0.0.8 sends no size for volumes of the type flex. The refusal says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn missing_volume_size_is_explained() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let flex = json!({ "storage_type": "flex", "deletion_protection": false });
    let refused = world.post(&world.admin, "/storage/create", flex).await;
    assert_eq!(refused.refusal(), (422, "validation_error".to_owned()));
    let message = refused.message();
    assert!(message.contains("every volume has a size in GB") && message.contains("--size 100"), "{message}");
    assert_eq!(refused.body["detail"][0]["type"], "missing");
}

/// Stands between an engine and its database until it is cut.
async fn wire(url: &str) -> (String, JoinSet<()>) {
    let (scheme, rest) = url.split_once('@').unwrap();
    let (server, name) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = format!("{scheme}@{}/{name}", listener.local_addr().unwrap());
    let (mut wires, server) = (JoinSet::new(), server.to_owned());
    wires.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = TcpStream::connect(&server).await.unwrap();
            connections.spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        }
    });
    (through, wires)
}

/// Without its database the engine responds 503.
#[tokio::test(flavor = "multi_thread")]
async fn lost_database_is_unavailable() {
    let Some(mut fresh) = fresh(DatabaseKind::Postgres).await else { return };
    let Database::Postgres(url) = &fresh.database else { panic!("it is on PostgreSQL") };
    let (through, mut wires) = wire(url).await;
    fresh.database = Database::Postgres(through);
    let world = World::on(tarn_store::testing::World::on(fresh).await, Limits::default(), usual()).await;
    assert_eq!(world.call(Call::new(Method::GET, "/healthz")).await.status, 200);
    wires.shutdown().await;
    let create = Call::new(Method::POST, "/storage/create").key(&world.admin).json(&json!({ "size": 1 }));
    for call in [Call::new(Method::GET, "/healthz"), Call::new(Method::GET, "/me").key(&world.admin), create] {
        let refused = world.call(call).await;
        assert_eq!(refused.refusal(), (503, "unavailable".to_owned()));
        assert_eq!(refused.headers["retry-after"], "1");
    }
}
