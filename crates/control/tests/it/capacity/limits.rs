//! Limits of organizations: checked when a call is accepted, and nowhere else.

use rstest::rstest;
use tarn_base::Edit;
use tarn_control::operations::clusters::{self, NewCluster};
use tarn_control::operations::limits::{self, LimitsEdit, LimitsView};
use tarn_control::operations::storage::{self, NewVolume, VolumeEdit};
use tarn_control::testing::{World, world};
use tarn_control::{Error, Settings};
use tarn_model::limits::{Amounts, Limits};
use tarn_store::testing::DatabaseKind;

async fn set(world: &World, edit: LimitsEdit) -> LimitsView {
    let org = world.caller.user.org.clone().unwrap();
    limits::edit(&world.control, &world.caller, org.as_str(), edit).await.unwrap()
}

async fn create(world: &World, kind: &str, nodes: u32) -> Result<(), Error> {
    let new = NewCluster { instance_type: kind.into(), num_nodes: Some(nodes), ..Default::default() };
    clusters::create(&world.control, &world.caller, new).await.map(drop)
}

async fn volume(world: &World, size_gb: u64) -> Result<String, Error> {
    let made = storage::create(&world.control, &world.caller, NewVolume { size_gb, ..Default::default() }).await?;
    Ok(made.volume.to_string())
}

async fn used(world: &World) -> Amounts {
    let org = world.caller.user.org.clone().unwrap();
    limits::info(&world.control, &world.caller, org.as_str()).await.unwrap().used
}

/// Of two calls with room for one, one is refused.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn racing_calls_stay_within_limit(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    set(&world, LimitsEdit { gpus: Edit::Set(3), volume_gb: Edit::Set(15), ..Default::default() }).await;
    let all = futures::future::join_all((0..8).map(|_| create(&world, "2xH100", 1))).await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1);
    for refused in all.into_iter().filter_map(Result::err) {
        assert_eq!(refused.code, "limit_reached");
        assert!(refused.message.contains("may have 3 GPUs, has 2 and this asks for 2"), "{refused}");
    }
    let all = futures::future::join_all((0..8).map(|_| volume(&world, 10))).await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1);
    world.settle().await;
    let used = used(&world).await;
    assert_eq!((used.instances, used.gpus, used.volume_gb), (1, 2, 10));
}

/// Waiting clusters count against the limits, and destroyed ones do not.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn waiting_clusters_count(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    set(&world, LimitsEdit { instances: Edit::Set(3), cpu_milli: Edit::Set(20_000), ..Default::default() }).await;
    let first = world.running("8xH100", 1).await;
    let (waiting, _) = world.create("1xH100", 2).await;
    world.settle().await;
    assert_eq!(world.info(&waiting).await.cluster.state.name(), "PENDING");
    assert_eq!(used(&world).await.instances, 3);
    assert!(create(&world, "1xCPU", 1).await.unwrap_err().message.contains("may have 3 instances, has 3"));
    clusters::destroy(&world.control, &world.caller, first.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(used(&world).await.instances, 2);
    create(&world, "1xCPU", 1).await.unwrap();
}

/// Growth is counted, and a lowered limit breaks nothing.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn growth_is_counted(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let id = volume(&world, 10).await.unwrap();
    world.settle().await;
    set(&world, LimitsEdit { volume_gb: Edit::Set(15), ..Default::default() }).await;
    let grow = async |size_gb: u64| {
        let edit = VolumeEdit { size_gb: Some(size_gb), ..Default::default() };
        storage::edit(&world.control, &world.caller, &id, edit).await
    };
    assert_eq!(grow(16).await.unwrap_err().code, "limit_reached");
    grow(15).await.unwrap();
    world.settle().await;
    let cluster = world.running("1xCPU", 1).await;
    let lowered = set(&world, LimitsEdit { volume_gb: Edit::Set(1), instances: Edit::Set(0), ..Default::default() });
    assert_eq!(lowered.await.limits.volume_gb, Some(1));
    clusters::restart(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(world.info(&cluster).await.cluster.state.name(), "RUNNING");
    assert!(create(&world, "1xCPU", 1).await.is_err() && volume(&world, 1).await.is_err());
    set(&world, LimitsEdit { volume_gb: Edit::Clear, instances: Edit::Clear, ..Default::default() }).await;
    create(&world, "1xCPU", 1).await.unwrap();
    let events = world.events("limits.change").await;
    assert_eq!((events.len(), &events[0].detail["after"]["volume_gb"]), (3, &15.into()));
}

/// The configured limits apply to scopes without their own.
#[tokio::test(flavor = "multi_thread")]
async fn configured_limits_apply_by_default() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let configured = Limits { instances: Some(1), ..Limits::default() };
    let world = world.with_settings(Settings { limits: configured, ..Settings::default() });
    assert_eq!(create(&world, "1xCPU", 2).await.unwrap_err().code, "limit_reached");
    let stranger = world.other_tenant().await;
    let new = || NewCluster { instance_type: "1xCPU".into(), ..Default::default() };
    clusters::create(&world.control, &stranger, new()).await.unwrap();
    assert!(clusters::create(&world.control, &stranger, new()).await.is_err());
    set(&world, LimitsEdit { instances: Edit::Set(2), ..Default::default() }).await;
    create(&world, "1xCPU", 2).await.unwrap();
    let org = world.caller.user.org.clone().unwrap();
    let view = limits::clear(&world.control, &world.caller, org.as_str()).await.unwrap();
    assert_eq!((view.limits, view.own.is_empty()), (configured, true));
    assert!(limits::list(&world.control, &world.caller, "", None).await.unwrap().is_empty());
    assert!(limits::info(&world.control, &stranger, org.as_str()).await.is_err(), "not for members to see of others");
}
