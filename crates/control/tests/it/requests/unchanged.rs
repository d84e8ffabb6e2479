//! Edits that change nothing write nothing.

use rstest::rstest;
use tarn_base::Edit;
use tarn_control::operations::clusters::{self, ClusterEdit};
use tarn_control::operations::limits::{self, LimitsEdit};
use tarn_control::operations::storage::{self, VolumeEdit};
use tarn_control::operations::users::{self, PreferencesEdit};
use tarn_control::testing::{World, world};
use tarn_store::testing::DatabaseKind;
use tarn_store::{events, usage};

/// Returns the number of events, and the number of the caller's requests.
async fn written(world: &World) -> (usize, u64) {
    let scope = world.caller.user.org.as_ref().map_or(world.caller.user.id.as_str(), |org| org.as_str());
    let read = world
        .store
        .read(|tx| Ok::<_, tarn_store::Error>((events::after(tx, 0, 10_000)?.len(), usage::recount(tx, scope)?[1])));
    read.await.unwrap()
}

/// A repeated edit writes no event and no request, and its response names a request that can be polled.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn repeated_edit_writes_nothing(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (control, caller) = (&world.control, &world.caller);
    let cluster = world.running("1xCPU", 1).await;
    let volume = world.ready_volume().await;
    let name = ClusterEdit { name: Some("heron".into()), ..Default::default() };
    let protect = VolumeEdit { deletion_protection: Some(true), ..Default::default() };
    let notify = PreferencesEdit { notify_email_cluster_destroy: Some(true), ..Default::default() };
    let gpus = LimitsEdit { gpus: Edit::Set(3), ..Default::default() };
    let me = caller.user.id.as_str();

    let first = clusters::edit(control, caller, cluster.as_str(), name.clone()).await.unwrap();
    let first_volume = storage::edit(control, caller, volume.as_str(), protect.clone()).await.unwrap();
    users::edit_preferences(control, caller, notify.clone()).await.unwrap();
    let first_limits = limits::edit(control, caller, me, gpus).await.unwrap();
    let before = written(&world).await;

    assert_eq!(clusters::edit(control, caller, cluster.as_str(), name).await.unwrap(), first);
    assert_eq!(storage::edit(control, caller, volume.as_str(), protect).await.unwrap(), first_volume);
    assert!(users::edit_preferences(control, caller, notify).await.unwrap().notify_email_cluster_destroy);
    assert_eq!(limits::edit(control, caller, me, gpus).await.unwrap(), first_limits);
    assert_eq!(written(&world).await, before, "nothing was written");
    assert_eq!(world.request(&first.request).await.request.status().name(), "COMPLETED");

    let other = ClusterEdit { name: Some("egret".into()), ..Default::default() };
    assert_ne!(clusters::edit(control, caller, cluster.as_str(), other).await.unwrap().request, first.request);
    assert!(written(&world).await > before, "a change is written");
}

/// An edit that changes nothing and has no predecessor has a request, and no event.
#[tokio::test(flavor = "multi_thread")]
async fn first_unchanged_edit_has_request() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let before = written(&world).await;
    let same = ClusterEdit { deletion_protection: Some(false), ..Default::default() };
    let accepted = clusters::edit(&world.control, &world.caller, cluster.as_str(), same.clone()).await.unwrap();
    assert_eq!(world.request(&accepted.request).await.request.status().name(), "COMPLETED");
    let again = clusters::edit(&world.control, &world.caller, cluster.as_str(), same).await.unwrap();
    assert_eq!((again.request, written(&world).await), (accepted.request, (before.0, before.1 + 1)));
}
