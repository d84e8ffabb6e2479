//! A caller whose access ends while a call is carried out changes nothing, and events say where a change came from.

use rstest::rstest;
use tarn_control::Caller;
use tarn_control::operations::admin;
use tarn_control::operations::storage::{self, NewVolume};
use tarn_control::testing::world;
use tarn_store::testing::DatabaseKind;

/// A caller was authenticated, and their key is revoked, or they are disabled, before their change is committed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn change_of_a_revoked_caller_is_refused(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (control, admin) = (&world.control, &world.caller);
    let create = async |caller: &Caller| {
        let new = NewVolume { size_gb: 10, ..Default::default() };
        storage::create(control, caller, new).await.map_err(|error| error.code)
    };
    let (revoked, disabled) = (world.member("r@x.org", Some("x")).await, world.member("d@x.org", Some("x")).await);
    create(&revoked).await.unwrap();
    create(&disabled).await.unwrap();
    admin::revoke_key(control, admin, revoked.key.as_str()).await.unwrap();
    admin::disable_user(control, admin, disabled.user.id.as_str(), true).await.unwrap();
    assert_eq!(create(&revoked).await.unwrap_err(), "invalid_key");
    assert_eq!(create(&disabled).await.unwrap_err(), "user_disabled");
    assert_eq!(world.events("storage.create").await.len(), 2, "nothing was written for them");
    // Their rights may also have become fewer.
    let mut demoted = world.member("c@x.org", Some("x")).await;
    demoted.user.org_admin = true;
    assert_eq!(create(&demoted).await.unwrap_err(), "access_changed");
}

/// Every event of a call has the key, the address and the id of the call.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn events_carry_the_origin_of_the_call(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let address = Some("192.0.2.7".parse().unwrap());
    let caller = Caller { address, call: Some("c0ffee".into()), ..world.caller.clone() };
    storage::create(&world.control, &caller, NewVolume { size_gb: 10, ..Default::default() }).await.unwrap();
    let event = world.events("storage.create").await.remove(0);
    assert_eq!(event.origin, caller.origin());
    assert_eq!((event.origin.key, event.origin.address), (Some(caller.key), address));
    // The engine's own work has no origin.
    world.settle().await;
    let ready = world.events("storage.ready").await;
    assert!(ready.iter().all(|event| event.origin == Default::default()), "{ready:?}");
}
