//! The host and its GPUs: seen, drained and cleared by administrators.

use rstest::rstest;
use serde_json::{Value, json};
use tarn_control::reconcilers;

use crate::support::harness::{DatabaseKind, World};

async fn gpus(world: &World) -> Vec<Value> {
    world.get(&world.admin, "/admin/gpu/list").await.body["gpus"].as_array().unwrap().clone()
}

/// A GPU is drained and offered again.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn gpu_drains_and_undrains(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let admin = &world.admin;
    let all = gpus(&world).await;
    let id = all[0]["id"].as_str().unwrap();
    assert!(
        all.iter().all(|gpu| gpu["health"] == "GOOD" && gpu["withheld"] == Value::Null && gpu["simulated"] == true)
    );
    let drained = world.post(admin, &format!("/admin/gpu/drain/{id}"), json!({ "reason": "a new fan" })).await;
    assert_eq!(drained.status, 200);
    assert!(drained.text("message").contains("is not offered: drained by an operator"), "{drained:?}");
    let now = gpus(&world).await;
    assert!(now[0]["drained"] == true && now[0]["withheld"].as_str().unwrap().ends_with("a new fan"), "{now:?}");
    let listed = world.get(admin, "/admin/gpu/list").await.text("message");
    assert!(listed.contains("a new fan") && listed.contains("(simulated)"), "{listed}");
    let offered = world.post(admin, &format!("/admin/gpu/undrain/{id}"), json!({})).await;
    assert_eq!((offered.status, offered.text("message")), (200, format!("GPU {id} is offered.")));
    assert_eq!(gpus(&world).await, all);
    let refused = world.post(admin, &format!("/admin/gpu/clear/{id}"), json!({})).await;
    assert_eq!(refused.refusal(), (409, "gpu_not_fatal".to_owned()));
    for verb in ["drain", "undrain", "clear"] {
        let unknown = world.post(admin, &format!("/admin/gpu/{verb}/nonsense"), json!({})).await;
        assert_eq!(unknown.refusal(), (404, "not_found".to_owned()), "{verb}");
    }
    let long = world.post(admin, &format!("/admin/gpu/drain/{id}"), json!({ "reason": "x".repeat(201) })).await;
    assert_eq!(long.status, 422);
    let control = world.post(admin, &format!("/admin/gpu/drain/{id}"), json!({ "reason": "a\u{7}" })).await;
    assert_eq!(control.refusal(), (400, "invalid_reason".to_owned()));
}

/// The host is drained and accepts claims again.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn host_drains_and_undrains(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let admin = &world.admin;
    let before = world.get(admin, "/admin/host/info").await;
    assert_eq!((before.status, &before.body["host"]["drained"]), (200, &json!(false)));
    assert!(before.text("message").contains("takes on new clusters"));
    let drained = world.post(admin, "/admin/host/drain", json!({ "reason": "a new kernel" })).await;
    assert_eq!(drained.status, 200);
    let host = world.get(admin, "/admin/host/info").await.body["host"].clone();
    assert_eq!((&host["drained"], &host["drain_reason"]), (&json!(true), &json!("a new kernel")));
    let types = world.get(admin, "/cluster/types").await.body["types"].as_array().unwrap().clone();
    assert!(types.iter().all(|kind| kind["available"] == 0), "{types:?}");
    assert_eq!(world.post(admin, "/admin/host/undrain", json!({})).await.status, 200);
    let types = world.get(admin, "/cluster/types").await.body["types"].as_array().unwrap().clone();
    assert!(types.iter().all(|kind| kind["available"].as_u64().unwrap() > 0), "{types:?}");
}

/// An instance shows its GPUs.
#[tokio::test(flavor = "multi_thread")]
async fn instance_shows_its_gpus() {
    let Some(world) = World::open(DatabaseKind::Sqlite).await else { return };
    reconcilers::gpus::tick(&world.control).await.unwrap();
    let kind = gpus(&world).await[0]["model"].as_str().unwrap().to_owned();
    let body = json!({ "instance_type": format!("1x{kind}"), "tp_cluster_name": "box" });
    assert_eq!(world.post(&world.admin, "/cluster/create", body).await.status, 202);
    world.settle().await;
    let info = world.get(&world.admin, "/cluster/info/box").await.body["cluster_info"].clone();
    let own = &info["instances"][0]["gpus"][0];
    assert_eq!((&own["model"], &own["simulated"], &own["health"]), (&json!(kind), &json!(true), &json!("GOOD")));
    assert_eq!(gpus(&world).await[0]["instance_id"], info["instances"][0]["id"]);
}
