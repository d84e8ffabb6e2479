//! Volumes that fail while requests work on them, and reports of killed processes across crashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rstest::rstest;
use tarn_control::operations::{clusters, storage};
use tarn_control::reconcilers;
use tarn_control::runner::faults::{Fault, FaultPoint, Faults};
use tarn_control::testing::{World, world};
use tarn_driver::Driver;
use tarn_model::ids::{ClusterId, VolumeId};
use tarn_model::requests::RequestStatus;
use tarn_store::testing::DatabaseKind;

async fn status(world: &World, volume: &VolumeId) -> &'static str {
    storage::info(&world.control, &world.caller, volume.as_str()).await.unwrap().volume.state.name()
}

/// A volume on a running cluster of two nodes.
async fn attached(world: &World) -> (ClusterId, VolumeId) {
    let (cluster, volume) = (world.running("1xCPU", 2).await, world.ready_volume().await);
    storage::attach(&world.control, &world.caller, volume.as_str(), cluster.as_str(), false).await.unwrap();
    world.settle().await;
    (cluster, volume)
}

/// A step that fails this often, in this way.
struct Sometimes(&'static str, Fault, AtomicUsize);

impl Faults for Sometimes {
    fn at(&self, at: FaultPoint) -> Fault {
        let left = at.step == self.0
            && !at.undo
            && self.2.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if left { self.1 } else { Fault::None }
    }
}

/// Killed processes are reported although the step failed.
#[rstest]
#[case(Fault::Crash, RequestStatus::Completed)]
#[case(Fault::ErrorAfter, RequestStatus::Completed)]
#[case(Fault::TimeoutAfter, RequestStatus::Completed)]
#[tokio::test(flavor = "multi_thread")]
async fn killed_processes_are_reported_after_step_faults(
    #[case] fault: Fault,
    #[case] ends: RequestStatus,
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (cluster, volume) = attached(&world).await;
    let nodes = world.info(&cluster).await.instances;
    let mut killed = Vec::new();
    for node in &nodes {
        let pid = world.driver.fake.hold(&volume, &node.id, "python3").await.unwrap();
        killed.push(format!("python3 (process {pid}) on {}", node.name()));
    }
    let request = storage::detach(&world.control, &world.caller, volume.as_str(), cluster.as_str(), false).await;
    world.settle_with_faults(Arc::new(Sometimes("release", fault, AtomicUsize::new(2)))).await;
    let ended = world.request(&request.unwrap().request).await.request;
    assert_eq!(ended.status(), ends);
    let message = ended.message.unwrap();
    for process in &killed {
        assert_eq!(message.matches(process.as_str()).count(), 1, "{process}: {message}");
    }
    assert_eq!(world.events("storage.processes_killed").await.len(), 2, "one for each node");
    world.assert_agreement("after the detach").await;
}

/// Killed processes are reported although the detach failed.
#[tokio::test(flavor = "multi_thread")]
async fn killed_processes_are_reported_after_failed_detach() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (cluster, volume) = attached(&world).await;
    let node = world.info(&cluster).await.instances[0].clone();
    world.driver.fake.hold(&volume, &node.id, "python3").await.unwrap();
    let request = storage::detach(&world.control, &world.caller, volume.as_str(), cluster.as_str(), false).await;
    world.settle_with_faults(Arc::new(Sometimes("confirm", Fault::Permanent, AtomicUsize::new(1)))).await;
    let ended = world.request(&request.unwrap().request).await.request;
    assert_eq!(ended.status(), RequestStatus::Failed);
    let message = ended.message.unwrap();
    assert!(message.contains("made to fail for good. Processes that did not release the volume"), "{message}");
    assert_eq!(world.info(&cluster).await.attachment.map(|held| held.volume), Some(volume), "it is still attached");
    world.assert_agreement("after the undo").await;
}

/// Growing does not create a missing volume again.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn missing_volume_does_not_grow(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let volume = world.ready_volume().await;
    world.driver.fake.lose(&volume).await.unwrap();
    let edit = storage::VolumeEdit { size_gb: Some(20), ..Default::default() };
    let request = storage::edit(&world.control, &world.caller, volume.as_str(), edit).await.unwrap().request;
    reconcilers::instances::tick(&world.control).await.unwrap();
    assert_eq!(status(&world, &volume).await, "RESIZING", "what a request works on is left to it");
    world.settle().await;
    let ended = world.request(&request).await.request;
    assert_eq!((ended.status(), ended.message.as_deref()), (RequestStatus::Failed, Some("the volume is missing")));
    reconcilers::instances::tick(&world.control).await.unwrap();
    assert_eq!(status(&world, &volume).await, "FAILED");
    assert_eq!(world.driver.observe_volume(&volume).await, Ok(None), "nothing took its place");
    world.assert_agreement("while it is missing").await;
    world.driver.fake.mend(&volume).await.unwrap();
    reconcilers::instances::tick(&world.control).await.unwrap();
    assert_eq!(status(&world, &volume).await, "READY");
    world.assert_agreement("after it was found").await;
}

/// An outdated observation does not fail a volume.
#[tokio::test(flavor = "multi_thread")]
async fn stale_observation_fails_no_volume() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let volume = world.ready_volume().await;
    *world.driver.outdated.lock().unwrap() = Some(tarn_driver::Observed::default());
    reconcilers::instances::tick(&world.control).await.unwrap();
    assert_eq!(status(&world, &volume).await, "READY");
    assert!(world.driver.outdated.lock().unwrap().is_none(), "the old observation was used");
}

/// A volume that was never created does not recover.
#[tokio::test(flavor = "multi_thread")]
async fn volume_that_was_never_created_does_not_recover() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let new = storage::NewVolume { size_gb: 10, ..Default::default() };
    let volume = storage::create(&world.control, &world.caller, new).await.unwrap().volume;
    world.settle_with_faults(Arc::new(Sometimes("confirm", Fault::Permanent, AtomicUsize::new(1)))).await;
    assert_eq!(status(&world, &volume).await, "FAILED");
    reconcilers::instances::tick(&world.control).await.unwrap();
    assert_eq!(status(&world, &volume).await, "FAILED");
    assert_eq!(world.events("storage.recovered").await.len(), 0);
}

/// A restart whose volume fails in between says so, and the cluster can be recovered.
#[tokio::test(flavor = "multi_thread")]
async fn restart_reports_failed_volume() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (cluster, volume) = attached(&world).await;
    let (control, caller) = (&world.control, &world.caller);
    let request = clusters::restart(control, caller, cluster.as_str()).await.unwrap().request;
    world.driver.fake.damage(&volume, "its filesystem is damaged").await.unwrap();
    reconcilers::instances::tick(control).await.unwrap();
    assert_eq!(status(&world, &volume).await, "FAILED");
    world.settle().await;
    let ended = world.request(&request).await.request;
    assert_eq!(ended.status(), RequestStatus::Failed);
    assert!(ended.message.as_deref().unwrap().contains("its filesystem is damaged. Detach it first"), "{ended:?}");
    assert_eq!(world.info(&cluster).await.cluster.state.name(), "FAILED");
    let detached = storage::detach(control, caller, volume.as_str(), cluster.as_str(), false).await.unwrap();
    world.settle().await;
    assert_eq!(world.request(&detached.request).await.request.status(), RequestStatus::Completed);
    clusters::restart(control, caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(world.info(&cluster).await.cluster.state.name(), "RUNNING");
    world.assert_agreement("after the way out").await;
}
