//! The same call twice happens once.

use axum::http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::harness::{Answer, Call, DatabaseKind, World};

async fn post(world: &World, key: &str, path: &str, once: &str, body: &Value) -> Answer {
    let call = Call::new(Method::POST, path).key(key).header("idempotency-key", once.as_bytes());
    world.call(call.json(body)).await
}

/// A repeated call with the same key gets the same response.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn repeated_call_gets_same_response(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let (ada, ben) =
        (world.user("ada@example.org", Some("acme")).await, world.user("ben@example.org", Some("acme")).await);
    let body = json!({ "instance_type": "1xCPU" });
    let first = post(&world, &ada, "/cluster/create", "once", &body).await;
    world.settle().await;
    let second = post(&world, &ada, "/cluster/create", "once", &body).await;
    assert_eq!((second.status, &second.body), (202, &first.body));
    assert_eq!(world.get(&ada, "/cluster/list").await.body["clusters"].as_array().unwrap().len(), 1);

    let other_body = post(&world, &ada, "/cluster/create", "once", &json!({ "instance_type": "2xCPU" })).await;
    assert_eq!(other_body.refusal(), (409, "idempotency_key_reused".to_owned()));
    let other_path = post(&world, &ada, "/storage/create", "once", &json!({ "size": 1 })).await;
    assert_eq!(other_path.refusal(), (409, "idempotency_key_reused".to_owned()));
    let other_user = post(&world, &ben, "/cluster/create", "once", &body).await;
    assert_ne!(other_user.body["cluster_id"], first.body["cluster_id"], "keys of users do not meet");
    let other_key = post(&world, &ada, "/cluster/create", "twice", &body).await;
    assert_ne!(other_key.body["cluster_id"], first.body["cluster_id"]);
}

/// Idempotency also holds for a call without a body.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn idempotency_works_without_body(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", None).await;
    let cluster = world.cluster(&key, "one").await;
    let delete =
        || Call::new(Method::DELETE, &format!("/cluster/{cluster}")).key(&key).header("idempotency-key", b"bye");
    let first = world.call(delete()).await;
    assert_eq!(first.status, 202);
    let second = world.call(delete().raw(b"a body that nobody reads")).await;
    assert_eq!((second.status, &second.body), (202, &first.body));
    assert_eq!(
        world.delete(&key, &format!("/cluster/{cluster}")).await.status,
        409,
        "without the key it is a new call"
    );
}

/// A stored response with a secret is returned only to the same API key.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn stored_secret_needs_same_key(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let body = json!({ "email": "ada@example.org" });
    let first = post(&world, &world.admin, "/admin/user/create", "once", &body).await;
    let second = post(&world, &world.admin, "/admin/user/create", "once", &body).await;
    assert_eq!((second.status, &second.body), (200, &first.body));
    let me = world.get(&world.admin, "/me").await.text("user_id");
    let other = world.post(&world.admin, "/admin/key/create", json!({ "user_id": me })).await.text("api_key");
    let with_other = post(&world, &other, "/admin/user/create", "once", &body).await;
    assert_eq!(with_other.refusal(), (409, "idempotency_other_key".to_owned()));
}

/// A refused call does not use up the idempotency key.
#[tokio::test(flavor = "multi_thread")]
async fn refused_call_does_not_use_key() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let refused = post(&world, &world.admin, "/cluster/create", "once", &json!({ "instance_type": "9xZ80" })).await;
    assert_eq!(refused.status, 400);
    let better = post(&world, &world.admin, "/cluster/create", "once", &json!({ "instance_type": "1xCPU" })).await;
    assert_eq!(better.status, 202);
}

/// Malformed idempotency keys are refused.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_idempotency_keys_are_refused() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    for key in [&b""[..], b"two words", b"caf\xc3\xa9", &[b'k'; 256]] {
        let call = Call::new(Method::POST, "/cluster/create").key(&world.admin).header("idempotency-key", key);
        let refused = world.call(call.json(&json!({ "instance_type": "1xCPU" }))).await;
        assert_eq!(refused.refusal(), (400, "invalid_idempotency_key".to_owned()), "{key:?}");
    }
    let longest =
        post(&world, &world.admin, "/cluster/create", &"k".repeat(255), &json!({ "instance_type": "1xCPU" })).await;
    assert_eq!(longest.status, 202);
}
