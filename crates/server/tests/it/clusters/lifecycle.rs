//! Clusters through HTTP.

use axum::http::Method;
use rstest::rstest;
use serde_json::json;
use tarn_model::ids::ClusterId;

use crate::support::harness::{Call, DatabaseKind, World};

/// A cluster is created, shown and destroyed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn cluster_lifecycle(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", Some("acme")).await;

    let body = json!({ "instance_type": "2xH100", "num_nodes": 2, "tp_cluster_name": "trainer", "public_keys": null });
    let made = world.post(&key, "/cluster/create", body).await;
    assert_eq!(made.status, 202);
    insta::assert_json_snapshot!("create_cluster", made.redacted());
    let (cluster, request) = (made.text("cluster_id"), made.text("request_id"));

    let polled = world.get(&key, &format!("/request/info/{request}")).await;
    assert_eq!((polled.status, polled.headers.get("retry-after").unwrap().as_bytes()), (200, &b"1"[..]));
    world.settle().await;
    let polled = world.get(&key, &format!("/request/info/{request}")).await;
    assert_eq!((polled.text("status").as_str(), polled.headers.get("retry-after")), ("COMPLETED", None));
    insta::assert_json_snapshot!("request_of_cluster", polled.redacted());

    let listed = world.get(&key, "/cluster/list").await;
    insta::assert_json_snapshot!("list_clusters", listed.redacted());
    let of_nodes = world.get(&key, "/cluster/list?instances=True").await;
    insta::assert_snapshot!("list_instances", of_nodes.redacted()["message"].as_str().unwrap());
    let by_name = world.get(&key, "/cluster/info/trainer").await;
    insta::assert_snapshot!("cluster_info", by_name.redacted()["message"].as_str().unwrap());
    let by_id = world.get(&key, &format!("/cluster/info/{cluster}")).await;
    assert_eq!(by_id.body, by_name.body);
    assert_eq!(by_id.body["cluster_info"], listed.body["clusters"][0]);

    let gone = world.delete(&key, "/cluster/trainer").await;
    assert_eq!((gone.status, gone.text("cluster_id")), (202, cluster.clone()));
    world.settle().await;
    assert_eq!(world.get(&key, "/cluster/list").await.body["clusters"], json!([]));
    let all = world.get(&key, "/cluster/list?all=true").await;
    assert_eq!(all.body["clusters"][0]["status"], "DESTROYED");
    let ended = world.get(&key, &format!("/cluster/info/{cluster}")).await;
    assert_eq!((ended.status, &ended.body["cluster_info"]["status"]), (200, &json!("DESTROYED")));
    let operations = world.get(&key, &format!("/cluster/operations/{cluster}")).await;
    insta::assert_json_snapshot!("cluster_operations", operations.redacted());
    let claims = world.get(&key, &format!("/cluster/operations/{cluster}?type=cluster_claim&status=COMPLETED")).await;
    assert_eq!(claims.body["operations"].as_array().unwrap().len(), 1);
}

/// A cluster restarts and keeps its nodes.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn cluster_restarts(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", None).await;
    let cluster = world.cluster(&key, "trainer").await;
    let before = world.get(&key, "/cluster/info/trainer").await;
    let accepted = world.post(&key, "/cluster/restart/trainer", json!({})).await;
    assert_eq!((accepted.status, accepted.text("cluster_id")), (202, cluster.clone()));
    insta::assert_json_snapshot!("restart_cluster", accepted.redacted());
    let busy = world.post(&key, "/cluster/restart/trainer", json!({})).await;
    assert_eq!(busy.refusal(), (409, "cluster_busy".to_owned()));
    world.settle().await;
    let request = world.get(&key, &format!("/request/info/{}", accepted.text("request_id"))).await;
    assert_eq!(
        (request.text("status").as_str(), request.text("request_type").as_str()),
        ("COMPLETED", "CLUSTER_RESTART")
    );
    let after = world.get(&key, "/cluster/info/trainer").await;
    assert_eq!(after.body, before.body, "ids, names, addresses and keys are kept");
    let list = world.get(&key, &format!("/cluster/operations/{cluster}?type=CLUSTER_RESTART")).await;
    assert_eq!(list.body["operations"].as_array().unwrap().len(), 1);
    world.delete(&key, "/cluster/trainer").await;
    world.settle().await;
    let gone = world.post(&key, &format!("/cluster/restart/{cluster}"), json!({})).await;
    assert_eq!(gone.refusal(), (409, "cluster_gone".to_owned()));
}

/// A cluster is edited.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_edited(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", None).await;
    let cluster = world.cluster(&key, "first").await;
    world.cluster(&key, "second").await;
    let path = format!("/cluster/edit/{cluster}");

    let edited = world.patch(&key, &path, json!({ "cluster_name": "third", "deletion_protection": true })).await;
    assert_eq!(edited.status, 202);
    insta::assert_json_snapshot!("edit_cluster", edited.redacted());
    let request = world.get(&key, &format!("/request/info/{}", edited.text("request_id"))).await;
    assert_eq!((request.text("request_type").as_str(), request.text("status").as_str()), ("CLUSTER_EDIT", "COMPLETED"));
    let refused = world.delete(&key, "/cluster/third").await;
    assert_eq!(refused.refusal(), (409, "deletion_protected".to_owned()));

    let alias = world.patch(&key, &path, json!({ "tp_cluster_name": "fourth" })).await;
    assert_eq!(alias.status, 202);
    assert_eq!(world.get(&key, "/cluster/info/fourth").await.body["cluster_info"]["deletion_protection"], true);
    let taken = world.patch(&key, &path, json!({ "cluster_name": "second" })).await;
    assert_eq!(taken.refusal(), (409, "name_taken".to_owned()));
    let nothing = world.patch(&key, &path, json!({ "cluster_name": null })).await;
    assert_eq!(nothing.refusal(), (400, "nothing_to_change".to_owned()));
    let bad = world.patch(&key, &path, json!({ "cluster_name": "Größe" })).await;
    assert_eq!(bad.refusal(), (400, "invalid_name".to_owned()));
}

/// A cluster that does not fit waits and says what it waits for.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn claim_waits_for_capacity(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", None).await;
    let create = |name: &'static str| json!({ "instance_type": "8xH100", "tp_cluster_name": name });
    world.post(&key, "/cluster/create", create("first")).await;
    world.settle().await;
    let waiting = world.post(&key, "/cluster/create", create("second")).await;
    assert_eq!(waiting.status, 202);
    world.settle().await;

    let info = world.get(&key, "/cluster/info/second").await;
    let explanation = info.body["cluster_info"]["explanation"].as_str().unwrap();
    assert!(explanation.contains("8 H100 GPUs, 0 are free") && explanation.contains("1st in line"), "{explanation}");
    assert_eq!(info.body["cluster_info"]["status"], "PENDING");
    let listed = world.get(&key, "/cluster/list").await;
    insta::assert_snapshot!("list_waiting", listed.redacted()["message"].as_str().unwrap());

    assert_eq!(world.delete(&key, "/cluster/second").await.status, 202, "the way out of waiting");
    let never = world.post(&key, "/cluster/create", json!({ "instance_type": "8xH100", "num_nodes": 2 })).await;
    assert_eq!(never.refusal(), (400, "does_not_fit".to_owned()));
    let unknown = world.post(&key, "/cluster/create", json!({ "instance_type": "9xZ80" })).await;
    assert_eq!(unknown.refusal(), (400, "unknown_instance_type".to_owned()));
    assert!(unknown.message().contains("unknown instance type '9xZ80'; available types: "), "{unknown:?}");
    let small = world.post(&key, "/cluster/create", json!({ "instance_type": "8xh100" })).await;
    assert!(small.message().contains("did you mean 8xH100?"), "{small:?}");
}

/// The verbs of the API are no names: neither a cluster nor a volume gets one, and their paths never name an object.
#[tokio::test(flavor = "multi_thread")]
async fn verbs_are_reserved_as_names() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let key = world.user("ada@example.org", None).await;
    let (cluster, volume) = (world.cluster(&key, "trainer").await, world.volume(&key, "data").await);
    for (path, body) in [
        ("/cluster/create", json!({ "instance_type": "1xCPU", "tp_cluster_name": "list" })),
        ("/storage/create", json!({ "size": 1, "name": "quote" })),
    ] {
        let refused = world.post(&key, path, body).await;
        assert_eq!(refused.refusal(), (400, "invalid_name".to_owned()));
        assert!(refused.message().contains("is reserved"), "{refused:?}");
    }
    let edit = |path: String, body| world.call(Call::new(Method::PATCH, &path).key(&key).json(&body));
    let renamed = edit(format!("/cluster/edit/{cluster}"), json!({ "cluster_name": "types" })).await;
    assert_eq!(renamed.refusal(), (400, "invalid_name".to_owned()));
    let renamed = edit(format!("/storage/edit/{volume}"), json!({ "tp_storage_name": "attach" })).await;
    assert_eq!(renamed.refusal(), (400, "invalid_name".to_owned()));
    for (path, allowed) in [
        ("/cluster/create", "POST"),
        ("/cluster/list", "GET,HEAD"),
        ("/cluster/quote", "GET,HEAD"),
        ("/cluster/types", "GET,HEAD"),
        ("/storage/create", "POST"),
        ("/storage/list", "GET,HEAD"),
        ("/storage/attach", "POST"),
    ] {
        let refused = world.delete(&key, path).await;
        assert_eq!(refused.refusal(), (405, "wrong_method".to_owned()), "{path}");
        assert_eq!(refused.headers["allow"], allowed, "{path}");
    }
}

/// A cluster that had the name of a verb before it was reserved keeps working by its id, and can be renamed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn older_cluster_keeps_reserved_name(#[values("list", "info")] name: &'static str) {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let key = world.user("ada@example.org", None).await;
    let cluster = world.cluster(&key, "trainer").await;
    let id: ClusterId = cluster.parse().unwrap();
    let write = world.store.write(move |tx| -> Result<(), tarn_store::Error> {
        let mut older = tarn_store::clusters::get(tx, &id)?.unwrap();
        older.name = name.to_owned();
        tarn_store::clusters::save(tx, &older)
    });
    write.await.unwrap();
    for path in [format!("/cluster/info/{cluster}"), format!("/cluster/info/{name}")] {
        assert_eq!(world.get(&key, &path).await.body["cluster_info"]["name"], name, "{path}");
    }
    let body = json!({ "cluster_name": "other" });
    let call = Call::new(Method::PATCH, &format!("/cluster/edit/{cluster}")).key(&key).json(&body);
    assert_eq!(world.call(call).await.status, 202);
    assert_eq!(world.get(&key, "/cluster/info/other").await.status, 200);
    assert_eq!(world.delete(&key, &format!("/cluster/{cluster}")).await.status, 202);
}

/// Prices and instance types are shown.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_prices_and_types_are_shown() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let key = &world.admin;
    let quote = world.get(key, "/cluster/quote?instance_type=2xH100&num_nodes=3").await;
    assert_eq!((quote.status, &quote.body["hourly_rate"]), (200, &json!(11.94)));
    assert!(quote.message().contains("simulated"));
    assert_eq!(world.get(key, "/cluster/quote").await.status, 422);
    assert_eq!(world.get(key, "/cluster/quote?instance_type=x").await.status, 400);
    let types = world.get(key, "/cluster/types").await;
    insta::assert_snapshot!("cluster_types", types.message());
    assert_eq!(types.body["types"][0]["name"], "1xCPU");
    assert_eq!(types.body["types"].as_array().unwrap().last().unwrap()["simulated"], true);
    let none = world.get(key, "/cluster/list").await;
    assert_eq!(none.message(), "No clusters. Create one with `tp cluster create 1xCPU`.");
}

/// A cluster shows its SSH command.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_shows_ssh_command() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let key = world.user("ada@example.org", None).await;
    let cluster = world.cluster(&key, "node").await;
    let info = world.get(&key, &format!("/cluster/info/{cluster}")).await;
    let instance = info.body["cluster_info"]["instances"][0].clone();
    for system in ["?system=Linux", "?system=darwin", "?system=WINDOWS", ""] {
        let path = format!("/ssh/{}{system}", instance["id"].as_str().unwrap());
        let answer = world.get(&key, &path).await;
        assert_eq!((answer.status, &answer.body["command"]), (200, &instance["ssh_command"]), "{system}");
    }
    let unknown = world.get(&key, &format!("/ssh/{}?system=plan9", instance["id"].as_str().unwrap())).await;
    assert_eq!((unknown.status, &unknown.body["detail"][0]["loc"]), (422, &json!(["query", "system"])));
    assert_eq!(world.get(&key, "/ssh/i-000000000000").await.status, 404);
    assert_eq!(world.get(&key, &format!("/ssh/{cluster}")).await.refusal(), (400, "invalid_id".to_owned()));
}
