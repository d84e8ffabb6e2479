//! Instances that die, and instances without a row.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::clusters;
use tarn_control::reconcilers;
use tarn_control::testing::{World, world};
use tarn_driver::{Driver, End, InstanceSpec, Observed, VolumeSpec};
use tarn_model::capacity::Shape;
use tarn_model::ids::{ClusterId, InstanceId};
use tarn_store::instances;
use tarn_store::testing::DatabaseKind;

async fn tick(world: &World) {
    reconcilers::instances::tick(&world.control).await.unwrap();
}

async fn states(world: &World, cluster: &ClusterId) -> Vec<&'static str> {
    let view = world.info(cluster).await;
    std::iter::once(&view.cluster.state)
        .chain(view.instances.iter().map(|node| &node.state))
        .map(|s| s.name())
        .collect()
}

/// A dead instance is reported, and the others keep running.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn dead_instance_is_reported(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let cluster = world.running("1xH100", 2).await;
    let nodes = world.info(&cluster).await.instances;
    tick(&world).await;
    assert_eq!(states(&world, &cluster).await, ["RUNNING", "RUNNING", "RUNNING"]);

    world.driver.fake.kill(&nodes[1].id, End::OutOfMemory).await.unwrap();
    tick(&world).await;
    assert_eq!(states(&world, &cluster).await, ["FAILED", "RUNNING", "FAILED"]);
    let explanation = world.info(&cluster).await.explanation.unwrap();
    let expected = format!("node {} ran out of memory (limit 1.0 GiB)", nodes[1].name());
    assert!(explanation.contains(&expected) && explanation.contains("Restart the cluster"), "{explanation}");
    assert_eq!(world.store.read(instances::held).await.unwrap().gpus.len(), 2, "it keeps what it has");
    let died = world.events("instance.died").await;
    assert_eq!(
        (died.len(), died[0].object.as_str(), &died[0].detail["cause"]),
        (1, nodes[1].id.as_str(), &"oom".into())
    );
    world.assert_agreement("after the first death").await;

    tick(&world).await;
    assert_eq!(world.events("instance.died").await.len(), 1, "one death is recorded once");
    world.driver.fake.kill(&nodes[0].id, End::Exit).await.unwrap();
    tick(&world).await;
    assert_eq!(states(&world, &cluster).await, ["FAILED", "FAILED", "FAILED"]);
    let explanation = world.info(&cluster).await.explanation.unwrap();
    assert!(nodes.iter().all(|node| explanation.contains(&node.name())), "{explanation}");

    clusters::restart(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    tick(&world).await;
    let again = world.info(&cluster).await;
    assert_eq!((states(&world, &cluster).await, again.explanation), (vec!["RUNNING"; 3], None));
    let places = |nodes: &[tarn_model::clusters::Instance]| {
        nodes.iter().map(|node| (node.id.clone(), node.private_ip.clone())).collect::<Vec<_>>()
    };
    assert_eq!(places(&again.instances), places(&nodes), "the same nodes, at the same addresses");
    world.assert_agreement("after the restart").await;
}

/// An instance that vanished is lost, and its cluster can be destroyed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn vanished_instance_can_be_destroyed(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let cluster = world.running("1xH100", 2).await;
    let node = world.info(&cluster).await.instances[0].id.clone();
    world.driver.remove_instance(&node).await.unwrap();
    tick(&world).await;
    assert_eq!(states(&world, &cluster).await, ["FAILED", "FAILED", "RUNNING"]);
    assert_eq!(world.events("instance.died").await[0].detail["cause"], "lost");
    clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    world.assert_agreement("after the destruction").await;
    assert!(world.store.read(instances::held).await.unwrap().gpus.is_empty());
}

/// A cluster with an open request is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn busy_cluster_is_left_alone() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let node = world.info(&cluster).await.instances[0].id.clone();
    clusters::restart(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.driver.fake.kill(&node, End::Exit).await.unwrap();
    tick(&world).await;
    assert_eq!(states(&world, &cluster).await, ["RESTARTING", "RESTARTING"]);
    world.settle().await;
    assert_eq!(states(&world, &cluster).await, ["RUNNING", "RUNNING"]);
}

/// A dead instance is reported although not everything can be observed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn dead_instance_is_reported_without_full_observation(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (first, second) = (world.running("1xCPU", 2).await, world.running("1xCPU", 1).await);
    let node = world.info(&first).await.instances[1].id.clone();
    world.driver.observe_fails.store(true, Ordering::SeqCst);
    world.driver.fake.kill(&node, End::Exit).await.unwrap();
    reconcilers::instances::tick(&world.control).await.unwrap_err();
    assert_eq!(states(&world, &first).await, ["FAILED", "RUNNING", "FAILED"]);
    assert_eq!(states(&world, &second).await, ["RUNNING", "RUNNING"]);
    reconcilers::instances::tick(&world.control).await.unwrap_err();
    assert_eq!(world.events("instance.died").await.len(), 1, "one death is recorded once");
}

/// The isolation is restored at every tick, and a failure of it hides no dead instance.
#[tokio::test(flavor = "multi_thread")]
async fn failing_isolation_hides_no_dead_instance() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let before = world.driver.isolated.load(Ordering::SeqCst);
    tick(&world).await;
    assert_eq!(world.driver.isolated.load(Ordering::SeqCst), before + 1);
    let node = world.info(&cluster).await.instances[0].id.clone();
    world.driver.isolation_fails.store(true, Ordering::SeqCst);
    world.driver.fake.kill(&node, End::Exit).await.unwrap();
    reconcilers::instances::tick(&world.control).await.unwrap_err();
    assert_eq!(states(&world, &cluster).await, ["FAILED", "FAILED"]);
}

/// An outdated observation marks no instance as dead.
#[tokio::test(flavor = "multi_thread")]
async fn stale_observation_marks_no_instance_dead() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    *world.driver.outdated.lock().unwrap() = Some(Observed::default());
    tick(&world).await;
    assert_eq!(states(&world, &cluster).await, ["RUNNING", "RUNNING"]);
    assert!(world.driver.outdated.lock().unwrap().is_none(), "the old observation was used");
}

/// An instance without a row is removed after its grace period.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn orphan_is_removed_after_grace_period(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let owned = world.running("1xCPU", 1).await;
    let orphan: InstanceId = "i-000000000000".parse().unwrap();
    let spec = InstanceSpec {
        id: orphan.clone(),
        cluster: "c-000000000000".parse().unwrap(),
        node: 0,
        name: "orphan".into(),
        shape: Shape { cpu_milli: 1, memory_bytes: 1, gpus: 0, gpu_model: None },
        gpus: Vec::new(),
        container: None,
        boot: 1,
        volumes: Vec::new(),
        share: "share".into(),
    };
    let volume = VolumeSpec { id: "s-000000000000".parse().unwrap(), size_bytes: 1 };
    world.driver.ensure_volume(&volume).await.unwrap();
    world.driver.ensure_instance(&spec).await.unwrap();
    let exists = async || world.driver.observe_instance(&orphan).await.unwrap().is_some();
    tick(&world).await;
    world.wait(Duration::from_secs(50)).await;
    tick(&world).await;
    assert!(exists().await, "its grace is a minute");

    // An orphan that was gone in between is a new sighting.
    world.driver.remove_instance(&orphan).await.unwrap();
    tick(&world).await;
    world.driver.ensure_instance(&spec).await.unwrap();
    tick(&world).await;
    world.wait(Duration::from_secs(50)).await;
    tick(&world).await;
    assert!(exists().await);
    world.wait(Duration::from_secs(11)).await;
    tick(&world).await;
    assert!(!exists().await);
    let removed = world.events("machine.orphan_removed").await;
    assert_eq!(removed.iter().map(|event| event.object.as_str()).collect::<Vec<_>>(), [orphan.as_str()]);
    assert_eq!(states(&world, &owned).await, ["RUNNING", "RUNNING"], "what has a row is left alone");
    assert!(world.driver.observe_volume(&volume.id).await.unwrap().is_some(), "data is never removed by a guess");
    assert_eq!(world.events("machine.volume_unknown").await.len(), 1, "it is reported once");
}
