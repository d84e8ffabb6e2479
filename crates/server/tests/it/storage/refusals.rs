//! What is not done with volumes: every wrong size, id, state and race is refused by name, and nothing changes.

use axum::http::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tarn_control::testing::Setup;
use tarn_driver::fake::FakeDriver;

use crate::support::harness::{Answer, Call, DatabaseKind, World, usual};

fn attach(volume: &str, cluster: &str) -> Value {
    json!({ "storage_id": volume, "cluster_ids": [cluster] })
}

fn detach(volume: &str, cluster: &str) -> Value {
    json!({ "storage_id": volume, "cluster_id": cluster })
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

async fn volume_status(world: &World, key: &str, volume: &str) -> Value {
    world.get(key, &format!("/storage/info/{volume}")).await.body["storage_info"]["status"].clone()
}

/// The size of a volume is checked.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn volume_sizes_are_checked(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let volume = world.volume(&world.admin, "data").await;
    let edit = format!("/storage/edit/{volume}");
    let raw = |method: Method, path: &str, body: String| {
        world.call(Call::new(method, path).key(&world.admin).raw(body.as_bytes()))
    };
    for (size, kind) in [
        ("0", "greater_than_equal"),
        ("-1", "greater_than_equal"),
        ("-1000000000000000000", "greater_than_equal"),
        ("1000001", "less_than_equal"),
        ("1000000000000000000", "less_than_equal"),
        ("1e18", "less_than_equal"),
        ("99999999999999999999999", "less_than_equal"),
        ("1.5", "int_from_float"),
        ("\"100\"", "int_type"),
        ("true", "int_type"),
        ("[1]", "int_type"),
    ] {
        let created = raw(Method::POST, "/storage/create", format!("{{\"size\": {size}}}")).await;
        let edited = raw(Method::PATCH, &edit, format!("{{\"size_gb\": {size}}}")).await;
        for answer in [created, edited] {
            assert_eq!(answer.refusal(), refused(422, "validation_error"), "{size}");
            assert_eq!(answer.body["detail"][0]["type"], kind, "{size}: {answer:?}");
        }
    }
    for (size, status, code) in
        [(9, 409, "storage_cannot_shrink"), (1001, 409, "storage_grows_too_far"), (1000, 409, "pool_full")]
    {
        // The pool has 1000 GB: what the other volume takes is missing for this one.
        if code == "pool_full" {
            world.volume(&world.admin, "other").await;
        }
        let answer = world.patch(&world.admin, &edit, json!({ "size_gb": size })).await;
        assert_eq!(answer.refusal(), refused(status, code), "{size}");
    }
    assert_eq!(volume_status(&world, &world.admin, &volume).await, "READY", "nothing changed");
}

/// A full pool names its sizes.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn full_pool_names_its_sizes(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let create = async |size: u64| world.post(&world.admin, "/storage/create", json!({ "size": size })).await;
    assert_eq!(create(600).await.status, 202);
    let full = create(401).await;
    assert_eq!(full.refusal(), refused(409, "pool_full"));
    for number in ["has 1000 GB:", "600 GB are promised", "400 GB are free", "needs 401 GB more"] {
        assert!(full.message().contains(number), "{number}: {}", full.message());
    }
    assert_eq!(create(400).await.status, 202, "what was refused promised nothing");
}

/// Attaching checks ids and the number of clusters.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn attach_checks_ids_and_cluster_count(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let key = &world.admin;
    let (cluster, volume) = (world.cluster(key, "trainer").await, world.volume(key, "data").await);
    let answers = async |volume: &str| -> Vec<Answer> {
        vec![
            world.post(key, "/storage/attach", attach(volume, &cluster)).await,
            world.post(key, "/storage/detach", detach(volume, &cluster)).await,
            world.get(key, &format!("/storage/info/{volume}")).await,
            world.patch(key, &format!("/storage/edit/{volume}"), json!({ "size_gb": 20 })).await,
            world.delete(key, &format!("/storage/{volume}")).await,
        ]
    };
    for (id, status, code) in [
        ("data", 400, "invalid_id"),
        ("c-000000000000", 400, "invalid_id"),
        (&volume[2..], 400, "invalid_id"),
        ("s-0", 400, "invalid_id"),
        ("s-UPPER0000000", 400, "invalid_id"),
        ("s-000000000000", 404, "not_found"),
    ] {
        for answer in answers(id).await {
            assert_eq!(answer.refusal(), refused(status, code), "{id}");
        }
    }
    for (clusters, kind) in
        [(json!([]), "too_short"), (json!([cluster, cluster]), "too_long"), (json!(cluster), "list_type")]
    {
        let body = json!({ "storage_id": volume, "cluster_ids": clusters });
        let answer = world.post(key, "/storage/attach", body).await;
        assert_eq!(answer.refusal(), refused(422, "validation_error"), "{clusters}");
        assert_eq!(answer.body["detail"][0]["type"], kind, "{answer:?}");
    }
    for unknown in ["c-000000000000", "nobody", ""] {
        let answer = world.post(key, "/storage/attach", attach(&volume, unknown)).await;
        assert_eq!(answer.refusal(), refused(404, "not_found"), "{unknown:?}");
        let answer = world.post(key, "/storage/detach", detach(&volume, unknown)).await;
        assert_eq!(answer.refusal(), refused(404, "not_found"), "{unknown:?}");
    }
}

/// The storage of another tenant is denied.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn storage_of_other_tenants_is_denied(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let (ada, eve) = (world.user("ada@example.org", None).await, world.user("eve@example.org", None).await);
    let (hers, mine) = (world.volume(&ada, "data").await, world.volume(&eve, "data").await);
    let (her_cluster, my_cluster) = (world.cluster(&ada, "trainer").await, world.cluster(&eve, "other").await);
    for body in [attach(&hers, &my_cluster), attach(&mine, &her_cluster)] {
        assert_eq!(world.post(&eve, "/storage/attach", body).await.refusal(), refused(403, "access_denied"));
    }
    let by_name = world.post(&eve, "/storage/attach", attach(&mine, "trainer")).await;
    assert_eq!(by_name.refusal(), refused(404, "not_found"), "another tenant's name is unknown");
    world.post(&ada, "/storage/attach", attach(&hers, &her_cluster)).await;
    world.settle().await;
    for live in [true, false] {
        let body = json!({ "storage_id": hers, "cluster_id": her_cluster, "live": live });
        assert_eq!(world.post(&eve, "/storage/detach", body).await.refusal(), refused(403, "access_denied"));
    }
}

/// Calls check the states of the volume and the cluster.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn storage_calls_check_states(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = &world.admin;
    let post = async |path: &str, body: Value| world.post(key, path, body).await;
    let made = post("/cluster/create", json!({ "instance_type": "1xCPU", "tp_cluster_name": "trainer" })).await;
    let cluster = made.text("cluster_id");
    let ready = {
        let made = post("/storage/create", json!({ "size": 10, "name": "data" })).await;
        made.text("storage_id")
    };
    let busy = post("/storage/attach", attach(&ready, &cluster)).await;
    assert_eq!(busy.refusal(), refused(409, "storage_not_ready"), "it is PENDING");
    assert_eq!(world.delete(key, &format!("/storage/{ready}")).await.refusal(), refused(409, "storage_not_ready"));
    world.settle().await;
    let restarted = post("/cluster/restart/trainer", Value::Null).await;
    assert_eq!(restarted.status, 202, "{restarted:?}");
    let busy = post("/storage/attach", attach(&ready, &cluster)).await;
    assert_eq!(busy.refusal(), refused(409, "cluster_not_running"), "it is RESTARTING");
    world.settle().await;
    let never = post("/storage/detach", detach(&ready, &cluster)).await;
    assert_eq!(never.refusal(), refused(409, "not_attached"));

    assert_eq!(post("/storage/attach", attach(&ready, &cluster)).await.status, 202);
    let during = world.delete(key, &format!("/storage/{ready}")).await;
    assert_eq!(during.refusal(), refused(409, "storage_attached"), "it is being attached");
    let during = post("/storage/detach", detach(&ready, &cluster)).await;
    assert_eq!(during.refusal(), refused(409, "attachment_busy"));
    assert_eq!(world.delete(key, &format!("/cluster/{cluster}")).await.refusal(), refused(409, "attachment_busy"));
    world.settle().await;
    let other = world.volume(key, "other").await;
    for volume in [&ready, &other] {
        let second = post("/storage/attach", attach(volume, &cluster)).await;
        assert_eq!(second.refusal(), refused(409, "cluster_has_storage"), "a cluster has one volume");
    }
    let wrong = post("/storage/detach", detach(&other, &cluster)).await;
    assert_eq!(wrong.refusal(), refused(409, "not_attached"), "that one is not on it");

    // A volume that grows or is being destroyed cannot be attached, nor one that is gone.
    let second = world.cluster(key, "second").await;
    world.patch(key, &format!("/storage/edit/{other}"), json!({ "size_gb": 20 })).await;
    assert_eq!(post("/storage/attach", attach(&other, &second)).await.refusal(), refused(409, "storage_not_ready"));
    world.settle().await;
    assert_eq!(world.delete(key, &format!("/storage/{other}")).await.status, 202);
    for _ in ["it is DESTROYING", "it is DESTROYED"] {
        assert_eq!(post("/storage/attach", attach(&other, &second)).await.refusal(), refused(409, "storage_gone"));
        assert_eq!(world.delete(key, &format!("/storage/{other}")).await.refusal(), refused(409, "storage_gone"));
        world.settle().await;
    }
    assert_eq!(world.delete(key, &format!("/cluster/{second}")).await.status, 202);
    let gone = post("/storage/attach", attach(&ready, &second)).await;
    assert_eq!(gone.refusal(), refused(409, "cluster_gone"));
}

/// Of concurrent calls one wins.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_attach_has_one_winner(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let key = &world.admin;
    let cluster = world.cluster(key, "trainer").await;
    let (first, second) = (world.volume(key, "first").await, world.volume(key, "second").await);
    let (a, b) = tokio::join!(
        world.post(key, "/storage/attach", attach(&first, &cluster)),
        world.post(key, "/storage/attach", attach(&second, &cluster)),
    );
    let mut statuses = [a.status, b.status];
    statuses.sort();
    assert_eq!(statuses, [202, 409], "{a:?} {b:?}");
    world.settle().await;

    let info = world.get(key, &format!("/cluster/info/{cluster}")).await;
    let winner = info.body["cluster_info"]["storage"][0].as_str().unwrap().to_owned();
    let loser = if winner == first { second } else { first };
    // A volume that is destroyed and attached at the same time ends in one of the two states.
    let other = world.cluster(key, "other").await;
    let loser_path = format!("/storage/{loser}");
    let (attached, destroyed) =
        tokio::join!(world.post(key, "/storage/attach", attach(&loser, &other)), world.delete(key, &loser_path));
    let mut statuses = [attached.status, destroyed.status];
    statuses.sort();
    assert_eq!(statuses, [202, 409], "{attached:?} {destroyed:?}");
    world.settle().await;
    let after = world.get(key, &format!("/storage/info/{loser}")).await.body["storage_info"].clone();
    let seen = (after["status"].as_str().unwrap(), after["attached_clusters"].as_array().unwrap().len());
    assert!(seen == ("READY", 1) || seen == ("DESTROYED", 0), "{after}");
}

/// A live attach needs a driver that supports it.
#[tokio::test(flavor = "multi_thread")]
async fn live_needs_driver_support() {
    let world = World::with_setup(Setup { adjust: FakeDriver::without_live_mounts, ..usual() }).await;
    let key = &world.admin;
    let (cluster, volume) = (world.cluster(key, "trainer").await, world.volume(key, "data").await);
    let live = json!({ "storage_id": volume, "cluster_ids": [cluster], "live": true });
    assert_eq!(world.post(key, "/storage/attach", live).await.refusal(), refused(400, "live_unsupported"));
    assert_eq!(world.post(key, "/storage/attach", attach(&volume, &cluster)).await.status, 202);
    world.settle().await;
    let live = json!({ "storage_id": volume, "cluster_id": cluster, "live": true });
    assert_eq!(world.post(key, "/storage/detach", live).await.refusal(), refused(400, "live_unsupported"));
    assert_eq!(world.post(key, "/storage/detach", detach(&volume, &cluster)).await.status, 202);
    world.settle().await;
    assert_eq!(world.get(key, "/storage/list").await.body["volumes"][0]["attached_clusters"], json!([]));
}
