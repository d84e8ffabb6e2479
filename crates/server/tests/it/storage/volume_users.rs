//! Processes that use a volume which is detached: asked, killed, named; and how much of a volume is used.

use rstest::rstest;
use serde_json::{Value, json};
use tarn_model::ids::{InstanceId, VolumeId};

use crate::support::harness::{DatabaseKind, World};

/// A cluster of two nodes with a volume on it: their ids, with those of the nodes.
async fn attached(world: &World, key: &str) -> (String, VolumeId, Vec<InstanceId>) {
    let body = json!({ "instance_type": "1xCPU", "tp_cluster_name": "trainer", "num_nodes": 2 });
    let cluster = world.post(key, "/cluster/create", body).await.text("cluster_id");
    world.settle().await;
    let volume = world.volume(key, "data").await;
    let body = json!({ "storage_id": volume, "cluster_ids": [cluster] });
    assert_eq!(world.post(key, "/storage/attach", body).await.status, 202);
    world.settle().await;
    let info = world.get(key, "/cluster/info/trainer").await;
    let nodes = info.body["cluster_info"]["instances"].as_array().unwrap().clone();
    let nodes = nodes.iter().map(|node| node["id"].as_str().unwrap().parse().unwrap()).collect();
    (cluster, volume.parse().unwrap(), nodes)
}

async fn attachments(world: &World, key: &str, volume: &VolumeId) -> Value {
    world.get(key, &format!("/storage/info/{volume}")).await.body["storage_info"]["attachments"].clone()
}

/// A process that does not leave the volume is killed and named.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn stubborn_process_is_killed_and_named(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let key = &world.admin;
    let (cluster, volume, nodes) = attached(&world, key).await;
    let python = world.driver.fake.hold(&volume, &nodes[0], "python3").await.unwrap();
    let tail = world.driver.fake.hold(&volume, &nodes[1], "tail").await.unwrap();
    world.driver.fake.visit(&volume, &nodes[1], "bash").await.unwrap();

    let body = json!({ "storage_id": volume, "cluster_id": cluster });
    let detached = world.post(key, "/storage/detach", body).await;
    assert_eq!(detached.status, 202);
    world.settle().await;
    let ended = world.get(key, &format!("/request/info/{}", detached.text("request_id"))).await;
    assert_eq!(ended.body["status"], "COMPLETED");
    let message = ended.message();
    let start = "The storage is detached. Processes that did not release the volume within 10 s were killed: ";
    assert!(message.starts_with(start) && message.ends_with('.'), "{message}");
    for process in
        [format!("python3 (process {python}) on {cluster}-0"), format!("tail (process {tail}) on {cluster}-1")]
    {
        assert!(message.contains(&process), "{process}: {message}");
    }
    assert!(!message.contains("bash"), "it left when it was asked to: {message}");
    assert_eq!(attachments(&world, key, &volume).await, json!([]));

    let events = world.get(key, "/admin/event/list?limit=1000").await;
    let killed = events.body["events"].as_array().unwrap().clone();
    let killed: Vec<_> = killed.iter().filter(|event| event["verb"] == "storage.processes_killed").collect();
    assert_eq!(killed.len(), 2, "{killed:?}");
    let of_first = killed.iter().find(|event| event["detail"]["node"] == format!("{cluster}-0")).unwrap();
    assert_eq!(of_first["object"], volume.as_str());
    assert_eq!(of_first["detail"]["processes"], json!([{ "pid": python, "program": "python3" }]));
}

/// A live detach kills no process.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn live_detach_kills_nothing(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = &world.admin;
    let (cluster, volume, nodes) = attached(&world, key).await;
    let python = world.driver.fake.hold(&volume, &nodes[1], "python3").await.unwrap();
    let body = json!({ "storage_id": volume, "cluster_id": cluster, "live": true });
    let refused = world.post(key, "/storage/detach", body.clone()).await;
    assert_eq!(refused.refusal(), (409, "storage_in_use".to_owned()));
    assert!(refused.message().contains(&format!("python3 (process {python}) on {cluster}-1")), "{refused:?}");
    assert_eq!(attachments(&world, key, &volume).await[0]["status"], "ATTACHED", "nothing changed");

    // A process that starts to use the volume after the call was accepted blocks the request, and nothing else.
    tarn_driver::Driver::end_volume_users(&world.driver.fake, &volume, &nodes[1], std::time::Duration::ZERO)
        .await
        .unwrap();
    let detached = world.post(key, "/storage/detach", body.clone()).await;
    assert_eq!(detached.status, 202, "{detached:?}");
    world.driver.fake.hold(&volume, &nodes[1], "late").await.unwrap();
    world.settle().await;
    let ended = world.get(key, &format!("/request/info/{}", detached.text("request_id"))).await;
    assert_eq!(ended.body["status"], "FAILED");
    assert!(ended.message().contains("late (process"), "{ended:?}");
    assert_eq!(attachments(&world, key, &volume).await[0]["status"], "ATTACHED");
    assert_eq!(world.get(key, "/cluster/info/trainer").await.body["cluster_info"]["status"], "RUNNING");

    tarn_driver::Driver::end_volume_users(&world.driver.fake, &volume, &nodes[1], std::time::Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(world.post(key, "/storage/detach", body).await.status, 202);
    world.settle().await;
    assert_eq!(attachments(&world, key, &volume).await, json!([]));
}

/// The used size of a volume is shown.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn volume_usage_is_shown(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = &world.admin;
    let made = world.post(key, "/storage/create", json!({ "size": 10, "name": "data" })).await.text("storage_id");
    let path = format!("/storage/info/{made}");
    assert_eq!(world.get(key, &path).await.body["storage_info"]["used_gb"], Value::Null, "nobody has seen it yet");
    world.settle().await;
    assert_eq!(world.get(key, &path).await.body["storage_info"]["used_gb"], 0.0);

    world.driver.fake.fill(&made.parse().unwrap(), 2_500_000_000).await.unwrap();
    world.look().await;
    // Nothing was written to the database, and cached responses must not hide the new figure.
    let (info, list) = (world.get(key, &path).await, world.get(key, "/storage/list").await);
    assert_eq!(info.body["storage_info"]["used_gb"], 2.5);
    assert_eq!(list.body["volumes"][0], info.body["storage_info"]);
    assert!(info.message().contains("2.5 GB") && list.message().contains("| 2.5 GB"), "{info:?} {list:?}");
    world.driver.fake.damage(&made.parse().unwrap(), "its filesystem is damaged").await.unwrap();
    world.look().await;
    assert_eq!(world.get(key, &path).await.body["storage_info"]["used_gb"], Value::Null);
}
