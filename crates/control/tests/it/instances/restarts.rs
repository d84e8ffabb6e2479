//! Restarting clusters: what can be restarted, and what is kept.

use std::sync::Arc;

use tarn_control::operations::{clusters, storage};
use tarn_control::runner::faults::{Fault, FaultPoint, Faults};
use tarn_control::testing::world;
use tarn_model::requests::{RequestStatus, RequestType};
use tarn_store::testing::DatabaseKind;

/// A step that always fails.
struct Never(RequestType, &'static str);

impl Faults for Never {
    fn at(&self, at: FaultPoint) -> Fault {
        if at.kind == self.0 && at.step == self.1 && !at.undo { Fault::Permanent } else { Fault::None }
    }
}

/// Only a cluster that has its nodes can be restarted.
#[tokio::test(flavor = "multi_thread")]
async fn only_placed_clusters_are_restarted() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (control, caller) = (&world.control, &world.caller);
    let refused = async |id: &str| clusters::restart(control, caller, id).await.unwrap_err().code;
    let (cluster, _) = world.create("1xH100", 1).await;
    assert_eq!(refused(cluster.as_str()).await, "cluster_busy", "it is PENDING");
    world.settle_with_faults(Arc::new(Never(RequestType::ClusterClaim, "confirm"))).await;
    assert_eq!(refused(cluster.as_str()).await, "cluster_not_restartable", "it failed and released everything");

    let (cluster, volume) = (world.running("1xCPU", 1).await, world.ready_volume().await);
    storage::attach(control, caller, volume.as_str(), cluster.as_str(), true).await.unwrap();
    assert_eq!(refused(cluster.as_str()).await, "attachment_busy");
    world.settle().await;
    clusters::destroy(control, caller, cluster.as_str()).await.unwrap();
    assert_eq!(refused(cluster.as_str()).await, "cluster_gone");
    world.settle_with_faults(Arc::new(Never(RequestType::ClusterRelease, "remove"))).await;
    assert_eq!(refused(cluster.as_str()).await, "cluster_not_restartable", "a disk of it may be gone");
    clusters::destroy(control, caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(refused(cluster.as_str()).await, "cluster_gone");
    world.assert_agreement("in the end").await;
}

/// A failed restart can be repeated.
#[tokio::test(flavor = "multi_thread")]
async fn failed_restart_can_be_repeated() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (cluster, volume) = (world.running("1xH100", 2).await, world.ready_volume().await);
    let (control, caller) = (&world.control, &world.caller);
    storage::attach(control, caller, volume.as_str(), cluster.as_str(), true).await.unwrap();
    world.settle().await;
    let request = clusters::restart(control, caller, cluster.as_str()).await.unwrap().request;
    world.settle_with_faults(Arc::new(Never(RequestType::ClusterRestart, "restart"))).await;
    assert_eq!(world.request(&request).await.request.status(), RequestStatus::Failed);
    let failed = world.info(&cluster).await;
    assert_eq!(failed.cluster.state.name(), "FAILED");
    assert!(failed.explanation.unwrap().contains("Restart it again"));

    clusters::restart(control, caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    let view = world.info(&cluster).await;
    assert_eq!(view.cluster.state.name(), "RUNNING");
    assert!(view.instances.iter().all(|node| node.boot == 3), "no node counts the start that did not work: {view:?}");
    assert_eq!(view.attachment.map(|held| held.volume), Some(volume), "the volume comes back with the nodes");
    world.assert_agreement("after the second try").await;
}
