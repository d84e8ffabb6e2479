//! Administration through HTTP.

use rstest::rstest;
use serde_json::json;

use crate::support::harness::{DatabaseKind, World};

/// An administrator creates, lists and disables users and their keys.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn admin_manages_users_and_keys(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let admin = &world.admin;
    let made = world.post(admin, "/admin/user/create", json!({ "email": "ada@example.org", "org_name": "acme" })).await;
    assert_eq!(made.status, 200);
    let (user, key) = (made.text("user_id"), made.text("api_key"));
    assert!(key.starts_with("tp-") && key.len() == 43);
    let twice = world.post(admin, "/admin/user/create", json!({ "email": "ada@example.org" })).await;
    assert_eq!(twice.refusal(), (409, "email_taken".to_owned()));
    insta::assert_json_snapshot!("list_users", world.get(admin, "/admin/user/list").await.redacted());

    let second = world.post(admin, "/admin/key/create", json!({ "user_id": user })).await;
    assert_eq!(second.status, 200);
    assert_eq!(world.get(&second.text("api_key"), "/me").await.text("user_id"), user);
    let keys = world.get(admin, &format!("/admin/key/list?user_id={user}")).await;
    assert_eq!(keys.body["keys"].as_array().unwrap().len(), 2);
    assert!(!keys.body.to_string().contains(&key), "a key is shown once");
    let path = format!("/admin/key/revoke/{}", second.text("key_id"));
    assert_eq!(world.delete(admin, &path).await.status, 200);
    assert_eq!(world.get(&second.text("api_key"), "/me").await.refusal(), (401, "invalid_key".to_owned()));
    let own =
        world.get(admin, "/admin/key/list").await.body["keys"].as_array().unwrap().last().unwrap()["key_id"].clone();
    let refused = world.delete(admin, &format!("/admin/key/revoke/{}", own.as_str().unwrap())).await;
    assert_eq!(refused.refusal(), (409, "own_key".to_owned()));

    let post = async |verb: &str| world.post(admin, &format!("/admin/user/{verb}/{user}"), json!({})).await.status;
    assert_eq!(post("disable").await, 200);
    assert_eq!(world.get(&key, "/me").await.refusal(), (401, "user_disabled".to_owned()));
    assert_eq!(post("enable").await, 200);
    assert_eq!(world.get(&key, "/me").await.status, 200);
}

/// A grant changes the balance, and a negative one takes it back.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn admin_grants_balance(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", Some("acme")).await;
    let me = world.get(&key, "/me").await;
    let grant = async |to: &str, amount: f64| {
        world.post(&world.admin, "/admin/grant", json!({ "to": to, "amount": amount, "description": "test" })).await
    };
    let first = grant(&me.text("user_id"), 0.1).await;
    assert_eq!((first.text("account"), &first.body["balance"]), (me.text("org_id"), &json!(0.1)));
    let second = grant(&me.text("org_id"), 0.2).await;
    assert_eq!(second.body["balance"], json!(0.3), "tenths of dollars add up exactly");
    let back = grant(&me.text("org_id"), -0.3).await;
    assert_eq!(back.body["balance"], json!(0.0));
    assert_eq!(grant("o-000000000000", 1.0).await.refusal(), (404, "not_found".to_owned()));
    assert_eq!(grant("acme", 1.0).await.refusal(), (400, "invalid_id".to_owned()));
    assert_eq!(grant(&me.text("org_id"), 0.0).await.refusal(), (400, "invalid_amount".to_owned()));
    assert_eq!(grant(&me.text("org_id"), 1e12).await.status, 422);
}

/// The event log shows every change in order.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn admin_lists_events(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", None).await;
    world.post(&key, "/cluster/create", json!({ "instance_type": "1xCPU", "tp_cluster_name": "one" })).await;
    let all = world.get(&world.admin, "/admin/event/list").await;
    let verbs: Vec<_> = all.body["events"].as_array().unwrap().iter().map(|event| event["verb"].clone()).collect();
    assert!(verbs.contains(&json!("user.create")) && verbs.contains(&json!("cluster.create")), "{verbs:?}");
    assert!(!all.body.to_string().contains(&key), "no secret in the log");
    let next = all.body["next_after"].as_i64().unwrap();
    let rest = world.get(&world.admin, &format!("/admin/event/list?after={next}")).await;
    assert_eq!((&rest.body["events"], &rest.body["next_after"]), (&json!([]), &json!(next)));
    let first = world.get(&world.admin, "/admin/event/list?limit=1").await;
    assert_eq!(first.body["events"].as_array().unwrap().len(), 1);
    assert_eq!(world.get(&world.admin, "/admin/event/list?after=-1").await.status, 422);
}

/// Administrative calls refuse malformed input.
#[tokio::test(flavor = "multi_thread")]
async fn admin_calls_refuse_bad_input() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    for email in ["", "ada", "a b@c", "a\u{0}@b", "@"] {
        let refused = world.post(&world.admin, "/admin/user/create", json!({ "email": email })).await;
        assert_eq!(refused.refusal(), (400, "invalid_email".to_owned()), "{email:?}");
    }
    for name in ["", " acme", "a\u{7}"] {
        let body = json!({ "email": "ada@example.org", "org_name": name });
        let refused = world.post(&world.admin, "/admin/user/create", body).await;
        assert_eq!(refused.refusal(), (400, "invalid_org_name".to_owned()), "{name:?}");
    }
    assert_eq!(world.get(&world.admin, "/admin/user/list").await.body["users"].as_array().unwrap().len(), 1);
}
