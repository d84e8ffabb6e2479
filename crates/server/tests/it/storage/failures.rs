//! Volumes that are missing or damaged: FAILED with what to do, with a way out of every combination, and READY when
//! mended.

use rstest::rstest;
use serde_json::{Value, json};
use tarn_driver::End;
use tarn_model::ids::{InstanceId, VolumeId};

use crate::support::harness::{DatabaseKind, World};

const FAULT: &str = "its filesystem is damaged; ask the operator to repair it";

struct Scene {
    world: World,
    key: String,
    cluster: String,
    nodes: Vec<InstanceId>,
    volume: VolumeId,
}

impl Scene {
    /// A volume on a running cluster of two nodes.
    async fn open(database: DatabaseKind) -> Option<Scene> {
        let world = World::open(database).await?;
        let key = world.admin.clone();
        let body = json!({ "instance_type": "1xCPU", "tp_cluster_name": "trainer", "num_nodes": 2 });
        let made = world.post(&key, "/cluster/create", body).await;
        let cluster = made.text("cluster_id");
        let nodes = made.body["instance_ids"].as_array().unwrap().clone();
        let nodes = nodes.iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect();
        world.settle().await;
        let volume = world.volume(&key, "data").await.parse().unwrap();
        let scene = Scene { world, key, cluster, nodes, volume };
        assert_eq!(scene.attach().await.0, 202);
        scene.world.settle().await;
        Some(scene)
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let answer = self.world.post(&self.key, path, body).await;
        (answer.status, answer.body)
    }

    async fn attach(&self) -> (u16, Value) {
        self.post("/storage/attach", json!({ "storage_id": self.volume, "cluster_ids": [self.cluster] })).await
    }

    async fn detach(&self, live: bool) -> (u16, Value) {
        let body = json!({ "storage_id": self.volume, "cluster_id": self.cluster, "live": live });
        self.post("/storage/detach", body).await
    }

    async fn volume(&self) -> Value {
        self.world.get(&self.key, &format!("/storage/info/{}", self.volume)).await.body["storage_info"].clone()
    }

    async fn cluster_status(&self) -> Value {
        self.world.get(&self.key, "/cluster/info/trainer").await.body["cluster_info"]["status"].clone()
    }

    async fn outcome(&self, answer: &Value) -> (Value, String) {
        let ended =
            self.world.get(&self.key, &format!("/request/info/{}", answer["request_id"].as_str().unwrap())).await;
        (ended.body["status"].clone(), ended.message())
    }
}

/// A volume fails and recovers.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn failed_volume_recovers(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(scene) = Scene::open(database).await else { return };
    let Scene { world, key, volume, .. } = &scene;
    for lost in [false, true] {
        if lost {
            world.driver.fake.lose(volume).await.unwrap()
        } else {
            world.driver.fake.damage(volume, FAULT).await.unwrap()
        }
        world.look().await;
        let failed = scene.volume().await;
        assert_eq!(failed["status"], "FAILED");
        let explanation = failed["explanation"].as_str().unwrap();
        let words = if lost { "has restored it" } else { FAULT };
        assert!(explanation.contains(words), "{explanation}");
        let shown = world.get(key, &format!("/storage/info/{volume}")).await.message();
        assert!(shown.contains("FAILED") && shown.contains(words), "{shown}");

        // It can be neither attached nor grown nor destroyed as it is; its name can be changed.
        let path = format!("/storage/edit/{volume}");
        let grown = world.patch(key, &path, json!({ "size_gb": 20 })).await;
        assert_eq!(grown.refusal(), (409, "storage_failed".to_owned()));
        assert!(grown.message().contains(words), "{grown:?}");
        let other = world.cluster(key, if lost { "third" } else { "second" }).await;
        let body = json!({ "storage_id": volume, "cluster_ids": [other] });
        assert_eq!(world.post(key, "/storage/attach", body).await.refusal(), (409, "storage_failed".to_owned()));
        assert_eq!(
            world.delete(key, &format!("/storage/{volume}")).await.refusal(),
            (409, "storage_attached".to_owned())
        );
        assert_eq!(world.patch(key, &path, json!({ "tp_storage_name": "renamed" })).await.status, 202);

        world.look().await;
        assert_eq!(scene.volume().await["status"], "FAILED", "it stays so while nobody mends it");
        world.driver.fake.mend(volume).await.unwrap();
        world.look().await;
        let mended = scene.volume().await;
        assert_eq!((&mended["status"], &mended["explanation"]), (&json!("READY"), &Value::Null));
        assert_eq!(mended["attached_clusters"], json!([scene.cluster]));
    }
    let events = world.get(key, "/admin/event/list?limit=1000").await.body["events"].clone();
    let told = |verb: &str| events.as_array().unwrap().iter().filter(|event| event["verb"] == verb).count();
    assert_eq!((told("storage.failed"), told("storage.recovered")), (2, 2), "each is told once");
}

/// A failed volume is detached from a running cluster.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn failed_volume_detaches_from_running_cluster(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(true, false)] live: bool,
) {
    let Some(scene) = Scene::open(database).await else { return };
    let Scene { world, key, volume, .. } = &scene;
    world.driver.fake.damage(volume, FAULT).await.unwrap();
    world.look().await;
    let refused = world.post(key, "/cluster/restart/trainer", Value::Null).await;
    assert_eq!(refused.refusal(), (409, "storage_failed".to_owned()), "its nodes would not come up again");
    for words in [volume.as_str(), FAULT, "Detach it first"] {
        assert!(refused.message().contains(words), "{words}: {refused:?}");
    }
    let (status, answer) = scene.detach(live).await;
    assert_eq!(status, 202, "{answer}");
    world.settle().await;
    assert_eq!(scene.outcome(&answer).await.0, "COMPLETED");
    assert_eq!(scene.cluster_status().await, "RUNNING");
    assert_eq!(world.post(key, "/cluster/restart/trainer", Value::Null).await.status, 202);
    world.settle().await;
    assert_eq!(scene.cluster_status().await, "RUNNING");
    assert_eq!(world.delete(key, &format!("/storage/{volume}")).await.status, 202);
    world.settle().await;
    assert_eq!(scene.volume().await["status"], "DESTROYED");
}

/// A failed volume is detached from a failed cluster.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn failed_volume_detaches_from_failed_cluster(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(scene) = Scene::open(database).await else { return };
    let Scene { world, key, volume, nodes, .. } = &scene;
    let stubborn = world.driver.fake.hold(volume, &nodes[1], "python3").await.unwrap();
    world.driver.fake.kill(&nodes[0], End::Exit).await.unwrap();
    world.driver.fake.lose(volume).await.unwrap();
    world.look().await;
    assert_eq!((scene.cluster_status().await, &scene.volume().await["status"]), (json!("FAILED"), &json!("FAILED")));
    let refused = world.post(key, "/cluster/restart/trainer", Value::Null).await;
    assert_eq!(refused.refusal(), (409, "storage_failed".to_owned()));

    let (status, answer) = scene.detach(false).await;
    assert_eq!(status, 202, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("no node restarts"), "{answer}");
    world.settle().await;
    let (ended, message) = scene.outcome(&answer).await;
    assert_eq!(ended, "COMPLETED", "{message}");
    assert!(message.contains(&format!("python3 (process {stubborn}) on {}-1", scene.cluster)), "{message}");
    assert_eq!(scene.cluster_status().await, "FAILED", "its nodes were left as they are");
    assert_eq!(scene.volume().await["attached_clusters"], json!([]));
    assert_eq!(world.post(key, "/cluster/restart/trainer", Value::Null).await.status, 202);
    world.settle().await;
    assert_eq!(scene.cluster_status().await, "RUNNING", "without the volume");
    assert_eq!(world.delete(key, &format!("/storage/{volume}")).await.status, 202);
    world.settle().await;
    assert_eq!(scene.volume().await["status"], "DESTROYED");
}

/// A failed cluster is destroyed and leaves its volume.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn failed_cluster_is_destroyed_without_volume(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(scene) = Scene::open(database).await else { return };
    let Scene { world, key, volume, nodes, .. } = &scene;
    world.driver.fake.kill(&nodes[0], End::Lost).await.unwrap();
    world.look().await;
    assert_eq!(scene.cluster_status().await, "FAILED");
    assert_eq!(world.delete(key, "/cluster/trainer").await.status, 202);
    world.settle().await;
    let kept = scene.volume().await;
    assert_eq!((&kept["status"], &kept["attached_clusters"]), (&json!("READY"), &json!([])), "the data is kept");
    world.look().await;
    assert_eq!(scene.volume().await["status"], "READY");
    assert_eq!(world.delete(key, &format!("/storage/{volume}")).await.status, 202);
}
