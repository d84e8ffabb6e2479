//! Keys are pushed to running instances and removed from them.

use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::admin::{self, NewUser};
use tarn_control::operations::clusters::{self, NewCluster};
use tarn_control::operations::ssh_keys;
use tarn_control::operations::storage::{self, VolumeEdit};
use tarn_control::reconcilers::access;
use tarn_control::testing::{World, host_inventory, world};
use tarn_model::ids::{ClusterId, InstanceId, VolumeId};
use tarn_store::testing::DatabaseKind;

/// A different key for every number: any 32 bytes are valid.
fn key(number: usize, comment: &str) -> String {
    format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA{number:042} {comment}")
}

async fn create(world: &World, keys: Vec<String>, save_keys: bool) -> ClusterId {
    let new = NewCluster { instance_type: "1xCPU".into(), public_keys: keys, save_keys, ..Default::default() };
    clusters::create(&world.control, &world.caller, new).await.unwrap().cluster
}

async fn node(world: &World, cluster: &ClusterId) -> InstanceId {
    world.info(cluster).await.instances[0].id.clone()
}

async fn keys(world: &World, node: &InstanceId) -> Vec<String> {
    world.driver.fake.keys_of(node).await.unwrap().unwrap()
}

/// Keys are added to and removed from running instances.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn keys_change_in_running_instances(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (control, caller) = (&world.control, &world.caller);
    let (given, later) = (key(1, "given"), key(2, "later"));
    let cluster = create(&world, vec![given.clone()], true).await;
    world.settle().await;
    let node = node(&world, &cluster).await;
    assert_eq!(keys(&world, &node).await, vec![given.clone()]);

    ssh_keys::add(control, caller, &later, None).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), access::changed(control)).await.expect("the bell rings");
    access::tick(control).await.unwrap();
    assert_eq!(keys(&world, &node).await, [given.clone(), later.clone()]);

    let saved = ssh_keys::list(control, caller, false).await.unwrap();
    let first = saved.iter().find(|key| key.public_key == given).unwrap();
    let message = ssh_keys::remove(control, caller, first.id.as_str()).await.unwrap();
    assert!(message.contains("withdrawn from the cluster") && message.contains("within seconds"), "{message}");
    access::tick(control).await.unwrap();
    assert_eq!(keys(&world, &node).await, vec![later], "it was given to the cluster, and no longer opens it");
}

/// The keys of a disabled user are removed from instances.
#[tokio::test(flavor = "multi_thread")]
async fn disabled_user_loses_keys() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (control, caller) = (&world.control, &world.caller);
    let new = NewUser { email: "ben@example.org".into(), org_name: Some("default".into()) };
    let made = admin::create_user(control, caller, new).await.unwrap();
    let ben = control.authenticate(&made.api_key).await.unwrap();
    ssh_keys::add(control, &ben, &key(1, "ben"), None).await.unwrap();
    let cluster = create(&world, vec![], false).await;
    world.settle().await;
    let node = node(&world, &cluster).await;
    assert_eq!(keys(&world, &node).await, [key(1, "ben")]);
    for (disabled, left) in [(true, vec![]), (false, vec![key(1, "ben")])] {
        admin::disable_user(control, caller, ben.user.id.as_str(), disabled).await.unwrap();
        access::tick(control).await.unwrap();
        assert_eq!(keys(&world, &node).await, left);
    }
}

/// Nothing is pushed twice, except by a new engine.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_pushed_once() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    for _ in 0..2 {
        create(&world, vec![], false).await;
    }
    world.settle().await;
    assert_eq!(world.driver.take_pushes(), 2, "the claims pushed them");
    access::tick(&world.control).await.unwrap();
    assert_eq!(world.driver.take_pushes(), 0);
    let world = world.moved_to(host_inventory()).await;
    assert_eq!(access::tick(&world.control).await.unwrap(), Duration::from_secs(60));
    assert_eq!(world.driver.take_pushes(), 2, "a new engine does not know what its predecessor pushed");
    access::tick(&world.control).await.unwrap();
    assert_eq!(world.driver.take_pushes(), 0);
}

/// An unreachable instance is retried and does not delay others.
#[tokio::test(flavor = "multi_thread")]
async fn unreachable_instance_is_retried() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (first, second) = (create(&world, vec![], false).await, create(&world, vec![], false).await);
    world.settle().await;
    let (deaf, other) = (node(&world, &first).await, node(&world, &second).await);
    world.driver.unreachable.lock().unwrap().insert(deaf.clone());
    ssh_keys::add(&world.control, &world.caller, &key(1, "new"), None).await.unwrap();
    let pause = access::tick(&world.control).await.unwrap();
    assert!(pause < Duration::from_secs(1), "{pause:?}");
    assert_eq!(keys(&world, &other).await, [key(1, "new")]);
    world.driver.unreachable.lock().unwrap().clear();
    access::tick(&world.control).await.unwrap();
    assert!(keys(&world, &deaf).await.is_empty(), "its pause is not over");
    world.wait(pause).await;
    assert_eq!(access::tick(&world.control).await.unwrap(), Duration::from_secs(60));
    assert_eq!(keys(&world, &deaf).await, [key(1, "new")]);
}

/// More keys than fit into a message to a guest are refused.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_keys_are_refused() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (control, caller, long) = (&world.control, &world.caller, "x".repeat(8000));
    for number in 0..100 {
        ssh_keys::add(control, caller, &key(number, &long), None).await.unwrap();
    }
    let given = (100..120).map(|number| key(number, &long)).collect();
    let new = NewCluster { instance_type: "1xCPU".into(), public_keys: given, ..Default::default() };
    let refused = clusters::create(control, caller, new).await.unwrap_err();
    assert_eq!(refused.code, "too_many_ssh_keys", "{refused}");
    assert!(world.store.read(|tx| tarn_store::clusters::live(tx, None, 1)).await.unwrap().is_empty());
    let cluster = create(&world, vec![key(100, &long)], false).await;
    world.settle().await;
    assert_eq!(keys(&world, &node(&world, &cluster).await).await.len(), 101);
    let mut refused = None;
    for number in 200..220 {
        refused = refused.or(ssh_keys::add(control, caller, &key(number, &long), None).await.err());
    }
    assert_eq!(refused.unwrap().code, "too_many_ssh_keys");
}

/// The volumes that were last pushed to the only node of a cluster.
async fn linked(world: &World, cluster: &ClusterId) -> Vec<(String, String)> {
    let node = node(world, cluster).await;
    world.driver.volumes.lock().unwrap()[&node].clone()
}

async fn rename(world: &World, volume: &VolumeId, name: &str) {
    let edit = VolumeEdit { name: Some(name.into()), ..Default::default() };
    storage::edit(&world.control, &world.caller, volume.as_str(), edit).await.unwrap();
}

/// A volume is found by its name while it is attached.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn attached_volume_is_linked_by_name(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(true, false)] live: bool,
) {
    let Some(world) = world(database).await else { return };
    let (control, caller) = (&world.control, &world.caller);
    let (cluster, volume) = (world.running("1xCPU", 1).await, world.ready_volume().await);
    rename(&world, &volume, "data").await;
    assert_eq!(linked(&world, &cluster).await, []);
    storage::attach(control, caller, volume.as_str(), cluster.as_str(), live).await.unwrap();
    world.settle().await;
    let path = format!("/mnt/{volume}");
    assert_eq!(linked(&world, &cluster).await, [("data".to_owned(), path.clone())], "with the end of the request");

    access::tick(control).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), access::changed(control)).await.expect("the request has rung");
    rename(&world, &volume, "more-data").await;
    tokio::time::timeout(Duration::from_secs(30), access::changed(control)).await.expect("the bell rings");
    access::tick(control).await.unwrap();
    assert_eq!(linked(&world, &cluster).await, [("more-data".to_owned(), path)]);

    storage::detach(control, caller, volume.as_str(), cluster.as_str(), live).await.unwrap();
    world.settle().await;
    assert_eq!(linked(&world, &cluster).await, [], "with the end of the request");
}
