//! S3 keys stop at once with the access of their users, whichever replica ends it.

use rstest::rstest;
use tarn_control::operations::object_storage::{self, keys};
use tarn_control::operations::{admin, storage};
use tarn_control::testing::{Setup, World};
use tarn_control::{Caller, reconcilers};
use tarn_model::ids::OrgId;
use tarn_store::testing::{self, DatabaseKind, move_user, set_legacy_key};

/// An engine that serves S3.
async fn world(database: DatabaseKind) -> Option<World> {
    let setup = Setup { s3: Some("http://127.0.0.1:7071".into()), ..Setup::default() };
    Some(World::on(testing::World::open(database).await?, setup).await)
}

/// The key of a member, which S3 has just looked up.
async fn used_key(world: &World, member: &Caller) -> String {
    let key = object_storage::enable(&world.control, member).await.unwrap().credentials.access_key_id;
    assert!(works(world, &key).await);
    key
}

async fn works(world: &World, key: &str) -> bool {
    world.control.objects().holder_of(key).await.unwrap().is_some()
}

async fn give_legacy_key(world: &World, org: &OrgId) {
    let org = org.clone();
    world.store.write(move |tx| set_legacy_key(tx, &org, "TARNSHARED")).await.unwrap();
}

/// A disabled user's key stops at once, and works again when they are enabled.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn key_of_disabled_user_stops_at_once(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (ada, ben) = (world.member("ada@x.org", Some("x")).await, world.member("ben@x.org", Some("x")).await);
    let (ada_key, ben_key) = (used_key(&world, &ada).await, used_key(&world, &ben).await);
    let disable = |disabled| admin::disable_user(&world.control, &world.caller, ben.user.id.as_str(), disabled);
    let said = disable(true).await.unwrap();
    assert!(!works(&world, &ben_key).await && works(&world, &ada_key).await);
    assert!(!said.contains("legacy"), "{said}");
    disable(false).await.unwrap();
    assert!(works(&world, &ben_key).await);
}

/// Every change of a caller makes S3 look keys up again: a change elsewhere in the rows of users is noticed with it.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn key_of_moved_user_stops_with_the_next_change(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (ada, ben) = (world.member("ada@x.org", Some("x")).await, world.member("ben@x.org", Some("x")).await);
    let (ada_key, ben_key) = (used_key(&world, &ada).await, used_key(&world, &ben).await);
    let (user, org) = (ben.user.id.clone(), ada.user.org.clone());
    world.store.write(move |tx| move_user(tx, &user, None)).await.unwrap();
    storage::create(&world.control, &ada, storage::NewVolume { size_gb: 10, ..Default::default() }).await.unwrap();
    assert!(!works(&world, &ben_key).await && works(&world, &ada_key).await);
    // It stays ended when they return.
    reconcilers::expiry::tick(&world.control).await.unwrap();
    let user = ben.user.id.clone();
    world.store.write(move |tx| move_user(tx, &user, org.as_ref())).await.unwrap();
    world.control.objects().forget_keys();
    assert!(!works(&world, &ben_key).await && works(&world, &ada_key).await);
}

/// A key that another replica revokes stops at once in this one.
#[tokio::test(flavor = "multi_thread")]
async fn key_revoked_by_another_replica_stops_at_once() {
    let Some(world) = world(DatabaseKind::Postgres).await else { return };
    let ada = world.member("ada@x.org", Some("x")).await;
    let key = used_key(&world, &ada).await;
    keys::revoke(&world.beside(), &ada, &key).await.unwrap();
    assert!(!works(&world, &key).await);
}

/// The response to disabling a member says that the legacy key of the organization still works.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn disabling_a_member_warns_of_legacy_key(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (ada, ben) = (world.member("ada@x.org", Some("x")).await, world.member("ben@x.org", Some("x")).await);
    used_key(&world, &ada).await;
    give_legacy_key(&world, ada.user.org.as_ref().unwrap()).await;
    let disable = |disabled| admin::disable_user(&world.control, &world.caller, ben.user.id.as_str(), disabled);
    let said = disable(true).await.unwrap();
    assert!(said.contains("legacy S3 key TARNSHARED") && said.contains("retire-legacy"), "{said}");
    assert!(works(&world, "TARNSHARED").await);
    assert!(!disable(false).await.unwrap().contains("legacy"));
    keys::retire_legacy(&world.control, &ada).await.unwrap();
    assert!(!works(&world, "TARNSHARED").await);
    assert!(!disable(true).await.unwrap().contains("legacy"));
}
