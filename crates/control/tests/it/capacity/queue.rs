//! The line for capacity: explained, first come first served, left by destruction or at the deadline.

use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::clusters;
use tarn_control::{Kind, Settings, reconcilers};
use tarn_model::requests::RequestStatus;
use tarn_store::testing::DatabaseKind;

use crate::support::{World, machine, world};

async fn state(world: &World, cluster: &tarn_model::ids::ClusterId) -> &'static str {
    clusters::info(&world.control, &world.caller, cluster.as_str()).await.unwrap().cluster.state.name()
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_line_moves_in_order(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let first = world.running("4xH100", 1).await;
    let (large, large_request) = world.create("8xH100", 1).await;
    let (small, small_request) = world.create("1xH100", 1).await;
    world.settle().await;
    let explained = world.request(&large_request).await.explanation.unwrap();
    assert!(explained.contains("8 H100 GPUs, 4 are free") && explained.contains("1st in line"), "{explained}");
    let behind = world.request(&small_request).await;
    assert!(behind.explanation.unwrap().contains("2nd in line"));
    assert_eq!(behind.request.status, RequestStatus::Pending);
    assert_eq!(state(&world, &small).await, "PENDING", "the small one must not starve the large one");

    clusters::destroy(&world.control, &world.caller, first.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!((state(&world, &large).await, state(&world, &small).await), ("RUNNING", "PENDING"));
    clusters::destroy(&world.control, &world.caller, large.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(state(&world, &small).await, "RUNNING");
    world.assert_agreement("after the line has moved").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_can_be_destroyed() {
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
    assert_eq!((claim.status, claim.waiting), (RequestStatus::Failed, false));
    world.assert_agreement("after it left the line").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_at_its_deadline() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    world.running("8xH100", 1).await;
    let (waiting, request) = world.create("8xH100", 1).await;
    world.settle().await;
    world.wait(Settings::default().capacity_deadline + Duration::from_secs(1)).await;
    world.settle().await;
    let ended = world.request(&request).await.request;
    assert_eq!(ended.status, RequestStatus::Failed);
    assert!(ended.message.unwrap().contains("no capacity became free"));
    assert_eq!(state(&world, &waiting).await, "FAILED");
    clusters::destroy(&world.control, &world.caller, waiting.as_str()).await.unwrap();
    world.settle().await;
    world.assert_agreement("after the deadline").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_fit_is_refused_at_once() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    for (kind, nodes) in [("8xH100", 2), ("8xCPU", 1000), ("1xH100", 9)] {
        let new = clusters::NewCluster { instance_type: kind.into(), num_nodes: Some(nodes), ..Default::default() };
        let refused = clusters::create(&world.control, &world.caller, new).await.unwrap_err();
        assert_eq!((refused.kind, refused.code), (Kind::Invalid, "does_not_fit"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_line_is_served_to_its_end() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let mut line = vec![world.running("8xCPU", 1).await];
    for _ in 0..70 {
        line.push(world.create("8xCPU", 1).await.0);
    }
    for cluster in line {
        world.settle().await;
        assert_eq!(state(&world, &cluster).await, "RUNNING");
        clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    }
    world.settle().await;
    world.assert_agreement("after all were served").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_can_never_fit_any_more_leaves_the_line() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    world.running("4xH100", 1).await;
    let (large, request) = world.create("8xH100", 1).await;
    let (small, _) = world.create("2xH100", 1).await;
    world.settle().await;
    assert_eq!((state(&world, &large).await, state(&world, &small).await), ("PENDING", "PENDING"));
    let mut smaller = machine();
    smaller.gpus.truncate(6);
    let world = world.moved_to(smaller).await;
    world.settle().await;
    assert_eq!((state(&world, &large).await, state(&world, &small).await), ("FAILED", "RUNNING"));
    assert!(world.request(&request).await.explanation.unwrap().contains("can no longer hold the cluster"));
    world.assert_agreement("after the machine has shrunk").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ended_is_remembered_for_thirty_days() {
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
    assert_eq!(state(&world, &kept).await, "RUNNING", "what lives is not forgotten");
}
