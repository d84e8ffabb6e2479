//! The capacity queue: explained, left by a start, by destruction or at the deadline. `line.rs` has its order.

use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::clusters;
use tarn_control::testing::{World, host_inventory, world};
use tarn_control::{Kind, Settings, reconcilers};
use tarn_model::limits::Limits;
use tarn_model::requests::RequestStatus;
use tarn_store::testing::DatabaseKind;

async fn state(world: &World, cluster: &tarn_model::ids::ClusterId) -> &'static str {
    clusters::info(&world.control, &world.caller, cluster.as_str()).await.unwrap().cluster.state.name()
}

/// The capacity queue moves: what is free goes to a later claim at once, and what is freed to the earlier one.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn queue_moves(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let first = world.running("4xH100", 1).await;
    let (large, large_request) = world.create("8xH100", 1).await;
    world.settle().await;
    world.wait(Duration::from_secs(1)).await;
    let (small, _) = world.create("1xH100", 1).await;
    let (second, second_request) = world.create("4xH100", 1).await;
    world.settle().await;
    assert_eq!(state(&world, &small).await, "RUNNING", "a claim that cannot start keeps no other from free GPUs");
    let explained = world.request(&large_request).await.explanation.unwrap();
    assert!(explained.contains("8 H100 GPUs, 3 are free") && explained.contains("1st in line"), "{explained}");
    assert!(explained.contains("Claims that fit may overtake it; from "), "{explained}");
    let behind = world.request(&second_request).await;
    assert!(behind.explanation.unwrap().contains("2nd in line"));
    assert_eq!(behind.request.status(), RequestStatus::Pending);

    clusters::destroy(&world.control, &world.caller, first.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!((state(&world, &large).await, state(&world, &second).await), ("PENDING", "RUNNING"));
    for cluster in [small, second] {
        clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
        world.settle().await;
    }
    assert_eq!(state(&world, &large).await, "RUNNING");
    world.assert_agreement("after the queue has moved").await;
}

/// A cluster that waits for capacity can be destroyed.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_claim_can_be_destroyed() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    world.running("8xH100", 1).await;
    let (waiting, request) = world.create("8xH100", 1).await;
    world.settle().await;
    clusters::destroy(&world.control, &world.caller, waiting.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(state(&world, &waiting).await, "DESTROYED");
    let claim = world.request(&request).await.request;
    assert_eq!(claim.status(), RequestStatus::Failed);
    world.assert_agreement("after it left the line").await;
}

/// Waiting ends at the deadline.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_at_deadline() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    world.running("8xH100", 1).await;
    let (waiting, request) = world.create("8xH100", 1).await;
    world.settle().await;
    world.wait(Settings::default().capacity_deadline + Duration::from_secs(1)).await;
    world.settle().await;
    let ended = world.request(&request).await.request;
    assert_eq!(ended.status(), RequestStatus::Failed);
    assert!(ended.message.unwrap().contains("no capacity became free"));
    assert_eq!(state(&world, &waiting).await, "FAILED");
    clusters::destroy(&world.control, &world.caller, waiting.as_str()).await.unwrap();
    world.settle().await;
    world.assert_agreement("after the deadline").await;
}

/// A claim that can never fit is refused immediately.
#[tokio::test(flavor = "multi_thread")]
async fn impossible_claim_is_refused() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    for (kind, nodes) in [("8xH100", 2), ("8xCPU", 1000), ("1xH100", 9)] {
        let new = clusters::NewCluster { instance_type: kind.into(), num_nodes: Some(nodes), ..Default::default() };
        let refused = clusters::create(&world.control, &world.caller, new).await.unwrap_err();
        assert_eq!((refused.kind, refused.code), (Kind::Invalid, "does_not_fit"), "{refused}");
    }
}

/// A long queue of equal claims is served to its end.
#[tokio::test(flavor = "multi_thread")]
async fn long_queue_is_served_to_its_end() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let world = world.with_settings(Settings { limits: Limits::default(), ..Settings::default() });
    let mut queue = vec![world.running("8xCPU", 1).await];
    for _ in 0..70 {
        world.wait(Duration::from_millis(1)).await;
        queue.push(world.create("8xCPU", 1).await.0);
    }
    for cluster in queue {
        world.settle().await;
        assert_eq!(state(&world, &cluster).await, "RUNNING");
        clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    }
    world.settle().await;
    world.assert_agreement("after all were served").await;
}

/// A claim that can no longer fit leaves the queue.
#[tokio::test(flavor = "multi_thread")]
async fn claim_leaves_queue_when_host_shrinks() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    world.running("4xH100", 1).await;
    let (large, request) = world.create("8xH100", 1).await;
    let (small, _) = world.create("2xH100", 1).await;
    world.settle().await;
    assert_eq!((state(&world, &large).await, state(&world, &small).await), ("PENDING", "RUNNING"));
    let mut smaller = host_inventory();
    smaller.gpus.truncate(6);
    let world = world.moved_to(smaller).await;
    world.settle().await;
    assert_eq!((state(&world, &large).await, state(&world, &small).await), ("FAILED", "RUNNING"));
    assert!(world.request(&request).await.explanation.unwrap().contains("can no longer hold the cluster"));
    world.assert_agreement("after the host has shrunk").await;
}

/// Ended objects are kept for thirty days.
#[tokio::test(flavor = "multi_thread")]
async fn ended_objects_are_kept_for_thirty_days() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (gone, kept) = (world.running("1xCPU", 1).await, world.running("1xCPU", 1).await);
    clusters::destroy(&world.control, &world.caller, gone.as_str()).await.unwrap();
    world.settle().await;
    let day = Duration::from_secs(24 * 3600);
    world.wait(day * 29).await;
    reconcilers::expiry::tick(&world.control).await.unwrap();
    assert_eq!(state(&world, &gone).await, "DESTROYED");
    world.wait(day * 2).await;
    reconcilers::expiry::tick(&world.control).await.unwrap();
    let forgotten = clusters::info(&world.control, &world.caller, gone.as_str()).await.unwrap_err();
    assert_eq!(forgotten.kind, Kind::NotFound);
    assert_eq!(state(&world, &kept).await, "RUNNING", "what exists is kept");
}
