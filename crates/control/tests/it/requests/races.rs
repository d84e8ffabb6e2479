//! Calls and runners that race for the same object: one wins, the others are refused.

use rstest::rstest;
use tarn_control::operations::{clusters, ssh, storage};
use tarn_control::runner::Runner;
use tarn_control::testing::world;
use tarn_control::{Kind, Listing};
use tarn_store::testing::DatabaseKind;

/// Of two racing attaches one succeeds.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn two_attaches_race_for_one_cluster(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let (first, second) = (world.ready_volume().await, world.ready_volume().await);
    let attach = |volume: String| {
        let (control, caller, cluster) = (world.control.clone(), world.caller.clone(), cluster.clone());
        async move { storage::attach(&control, &caller, &volume, cluster.as_str(), true).await }
    };
    let (a, b) = tokio::join!(attach(first.to_string()), attach(second.to_string()));
    let refused = [&a, &b].into_iter().filter_map(|result| result.as_ref().err()).collect::<Vec<_>>();
    assert!(refused.len() == 1 && refused[0].kind == Kind::Conflict, "{a:?} {b:?}");
    world.settle().await;
    world.assert_agreement("after the race").await;
}

/// Several runners share the work.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_runners_share_the_work(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let mut made = Vec::new();
    for _ in 0..8 {
        made.push(world.create("1xCPU", 1).await.0);
    }
    let runners = (0..4).map(|_| {
        let runner = Runner::new(world.control.clone());
        tokio::spawn(async move { runner.tick().await.map(drop) })
    });
    for runner in runners.collect::<Vec<_>>() {
        runner.await.unwrap().unwrap();
    }
    world.settle().await;
    for cluster in made {
        let view = clusters::info(&world.control, &world.caller, cluster.as_str()).await.unwrap();
        assert_eq!(view.cluster.state.name(), "RUNNING");
    }
    world.assert_agreement("after the work was shared").await;
}

/// Another tenant sees nothing and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn other_tenants_see_and_change_nothing() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let (cluster, volume) = (world.running("1xCPU", 1).await, world.ready_volume().await);
    let view = clusters::info(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    let (name, node) = (view.cluster.name.clone(), view.instances[0].id.clone());
    let (control, eve) = (&world.control, &world.other_tenant().await);
    let kinds = [
        clusters::info(control, eve, cluster.as_str()).await.err(),
        clusters::destroy(control, eve, cluster.as_str()).await.err(),
        storage::info(control, eve, volume.as_str()).await.err(),
        storage::destroy(control, eve, volume.as_str()).await.err(),
        ssh::command(control, eve, node.as_str(), ssh::SshClient::default()).await.err(),
    ];
    assert!(kinds.iter().all(|error| error.as_ref().is_some_and(|error| error.kind == Kind::Forbidden)), "{kinds:?}");
    let by_name = clusters::info(control, eve, &name).await.unwrap_err();
    assert_eq!(by_name.kind, Kind::NotFound, "another tenant's name is unknown");
    let listing = Listing { include_org: true, all: true, ..Listing::default() };
    assert!(clusters::list(control, eve, listing).await.unwrap().items.is_empty());
}

/// Busy or protected objects are not destroyed.
#[tokio::test(flavor = "multi_thread")]
async fn busy_or_protected_objects_are_not_destroyed() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let (cluster, volume) = (world.running("1xCPU", 1).await, world.ready_volume().await);
    let (control, caller) = (&world.control, &world.caller);
    storage::attach(control, caller, volume.as_str(), cluster.as_str(), false).await.unwrap();
    assert_eq!(clusters::destroy(control, caller, cluster.as_str()).await.unwrap_err().code, "attachment_busy");
    world.settle().await;
    assert_eq!(storage::destroy(control, caller, volume.as_str()).await.unwrap_err().code, "storage_attached");
    let protect = |on| clusters::ClusterEdit { name: None, deletion_protection: Some(on) };
    clusters::edit(control, caller, cluster.as_str(), protect(true)).await.unwrap();
    assert_eq!(clusters::destroy(control, caller, cluster.as_str()).await.unwrap_err().code, "deletion_protected");
    clusters::edit(control, caller, cluster.as_str(), protect(false)).await.unwrap();
    clusters::destroy(control, caller, cluster.as_str()).await.unwrap();
    assert_eq!(clusters::destroy(control, caller, cluster.as_str()).await.unwrap_err().code, "cluster_gone");
    world.settle().await;
    world.assert_agreement("after the cluster went").await;
    storage::destroy(control, caller, volume.as_str()).await.unwrap();
    world.settle().await;
    world.assert_agreement("after the volume went").await;
}

/// Attaching restarts every node unless it is done live.
#[tokio::test(flavor = "multi_thread")]
async fn attach_restarts_nodes_unless_live() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let (cluster, volume) = (world.running("1xCPU", 2).await, world.ready_volume().await);
    let boots = async || {
        let view = clusters::info(&world.control, &world.caller, cluster.as_str()).await.unwrap();
        view.instances.iter().map(|instance| instance.boot).collect::<Vec<_>>()
    };
    let (control, caller) = (&world.control, &world.caller);
    storage::attach(control, caller, volume.as_str(), cluster.as_str(), false).await.unwrap();
    world.settle().await;
    world.assert_agreement("attached").await;
    assert_eq!(boots().await, [2, 2]);
    storage::detach(control, caller, volume.as_str(), cluster.as_str(), true).await.unwrap();
    world.settle().await;
    world.assert_agreement("detached live").await;
    assert_eq!(boots().await, [2, 2], "live means without a restart");
}
