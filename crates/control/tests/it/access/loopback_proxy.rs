//! Which instances have a loopback proxy.

use rstest::rstest;
use tarn_control::operations::{clusters, loopback_proxy};
use tarn_control::testing::world;
use tarn_store::testing::DatabaseKind;

/// Only running instances have a loopback proxy.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn only_running_instances_have_a_proxy(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let new = clusters::NewCluster { instance_type: "1xCPU".into(), num_nodes: Some(2), ..Default::default() };
    let cluster = clusters::create(&world.control, &world.caller, new).await.unwrap().cluster;
    assert_eq!(loopback_proxy::running(&world.control).await.unwrap(), [], "it is accepted, and does not run yet");
    world.settle().await;
    let first = loopback_proxy::running(&world.control).await.unwrap();
    assert_eq!(first.len(), 2);
    clusters::restart(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    let second = loopback_proxy::running(&world.control).await.unwrap();
    assert_eq!(second.len(), 2);
    assert!(second.iter().all(|start| !first.contains(start)), "a restart is another start");
    clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(loopback_proxy::running(&world.control).await.unwrap(), []);
}
