//! Requests of an older version, whose last step only committed. That step is now part of the one before it.

use std::sync::Arc;

use rstest::rstest;
use tarn_control::operations::{clusters, storage};
use tarn_control::runner::Runner;
use tarn_control::runner::faults::{Fault, FaultPoint, Faults};
use tarn_control::testing::{World, world};
use tarn_model::ids::RequestId;
use tarn_model::requests::{Progress, Request, RequestStatus};
use tarn_store::testing::DatabaseKind;
use tarn_store::{instances, requests};

/// The runner dies after the step "remove" has acted.
struct DiesAfterRemoval;

impl Faults for DiesAfterRemoval {
    fn at(&self, at: FaultPoint) -> Fault {
        if at.step == "remove" { Fault::Crash } else { Fault::None }
    }
}

/// Gives a request the progress that an older version would have stored.
async fn store_progress(world: &World, id: &RequestId, progress: Progress) {
    Runner::with_faults(world.control.clone(), Arc::new(DiesAfterRemoval)).tick().await.unwrap();
    let request = Request { progress, ..world.request(id).await.request };
    world.store.write(move |tx| requests::save(tx, &request)).await.unwrap();
    world.settle().await;
}

/// A request whose instances or volume were removed by an older version is completed, with everything that its last
/// step committed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn older_last_step_is_committed(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (cluster, volume) = (world.running("2xH100", 2).await, world.ready_volume().await);
    let released = clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap().request;
    store_progress(&world, &released, Progress::Forward { next: 2 }).await;
    assert_eq!(world.request(&released).await.request.status(), RequestStatus::Completed);
    assert_eq!(world.info(&cluster).await.cluster.state.name(), "DESTROYED");
    assert!(world.store.read(instances::held).await.unwrap().gpus.is_empty(), "its capacity is free");
    assert_eq!(world.events("cluster.destroyed").await.len(), 1);

    let destroyed = storage::destroy(&world.control, &world.caller, volume.as_str()).await.unwrap().request;
    store_progress(&world, &destroyed, Progress::Forward { next: 1 }).await;
    assert_eq!(world.request(&destroyed).await.request.status(), RequestStatus::Completed);
    assert_eq!(world.events("storage.destroyed").await.len(), 1);
    world.assert_agreement("after the upgrade").await;
}

/// A request that an older version began to undo at its last step fails, and a new try succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn older_undo_ends() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("2xH100", 2).await;
    let released = clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap().request;
    store_progress(&world, &released, Progress::Undoing { left: 3, why: "it took too long".into() }).await;
    let ended = world.request(&released).await.request;
    assert_eq!((ended.status(), ended.message.as_deref()), (RequestStatus::Failed, Some("it took too long")));
    clusters::destroy(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(world.info(&cluster).await.cluster.state.name(), "DESTROYED");
    world.assert_agreement("after the second try").await;
}
