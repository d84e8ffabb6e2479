//! A caller whose access ends while a call is carried out changes nothing, and events say where a change came from.

use std::net::SocketAddr;

use futures::FutureExt;
use rstest::rstest;
use tarn_control::operations::gateway::{self, LoginAccess, LoginMatch};
use tarn_control::operations::storage::{self, NewVolume};
use tarn_control::operations::{admin, clusters, ssh_keys};
use tarn_control::reconcilers::{access_records, revocations};
use tarn_control::testing::{World, world};
use tarn_control::{Caller, Control};
use tarn_model::Clock;
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
    assert_eq!((event.origin.key, event.origin.address), (Some(caller.key.to_string()), address));
    // The engine's own work has no origin.
    world.settle().await;
    let ready = world.events("storage.ready").await;
    assert!(ready.iter().all(|event| event.origin == Default::default()), "{ready:?}");
}

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti one";
const GIVEN: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMh4Ck57FfxgjFYG3WuFDJAnwW4aNFB1gwoRNhAAhK4A given";

fn fingerprint(key: &str) -> String {
    tarn_model::ssh_keys::parse(key).unwrap().fingerprint
}

/// The open session of a key, or `None` if it opens nothing.
async fn log_in(control: &Control, key: &str, name: &str) -> Option<LoginAccess> {
    let from: SocketAddr = "192.0.2.7:4711".parse().unwrap();
    match gateway::find(control, name, &fingerprint(key)).await.unwrap()? {
        LoginMatch::One(login) => Some(gateway::hold_access(control, &login, &fingerprint(key), from)),
        LoginMatch::Ambiguous(message) => panic!("{message}"),
    }
}

/// Why a session has ended, after one check of all sessions.
async fn why_ended(control: &Control, session: &LoginAccess) -> Option<String> {
    revocations::tick(control).await.unwrap();
    session.ended().now_or_never()
}

async fn shared_cluster(world: &World, caller: &Caller, keys: &[&str]) {
    let new = clusters::NewCluster {
        instance_type: "1xCPU".into(),
        name: Some("box".into()),
        public_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..Default::default()
    };
    clusters::create(&world.control, caller, new).await.unwrap();
    world.settle().await;
}

/// An SSH session ends when its key is removed or its user is disabled, also by another replica, and the event says why.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn ssh_session_ends_with_access(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (control, admin_user) = (&world.control, &world.caller);
    let (ada, ben) = (world.member("ada@x.org", Some("x")).await, world.member("ben@x.org", Some("x")).await);
    shared_cluster(&world, &ada, &[]).await;
    let saved = ssh_keys::add(control, &ada, KEY, None).await.unwrap();
    let copy = ssh_keys::add(control, &ben, KEY, None).await.unwrap();
    let session = log_in(control, KEY, "box").await.unwrap();
    assert_eq!(why_ended(control, &session).await, None);
    ssh_keys::remove(control, &ada, saved.key.as_str()).await.unwrap();
    assert_eq!(why_ended(control, &session).await, None, "another member has saved the same key");
    // Another replica removes it; this process is not notified.
    ssh_keys::remove(&world.beside(), &ben, copy.key.as_str()).await.unwrap();
    let why = why_ended(control, &session).await;
    assert_eq!(why.as_deref(), Some("the SSH key was removed"));
    assert_eq!(why_ended(control, &session).await, why);
    let events = world.events("ssh.end").await;
    assert_eq!(events.len(), 1, "it is recorded once, although the client is slow to leave");
    assert_eq!((&events[0].detail["reason"], &events[0].scope), (&why.into(), &ada.user.owner().scope().to_owned()));
    assert_eq!(events[0].origin.address, Some("192.0.2.7".parse().unwrap()));

    ssh_keys::add(control, &ben, KEY, None).await.unwrap();
    let session = log_in(control, KEY, "box").await.unwrap();
    admin::disable_user(control, admin_user, ben.user.id.as_str(), true).await.unwrap();
    let why = format!("user {} was disabled", ben.user.id);
    assert_eq!(why_ended(control, &session).await, Some(why));
    assert!(log_in(control, KEY, "box").await.is_none());
}

/// A key that was given to a cluster opens nothing once its creator, or the user who saved that key, is disabled.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn given_key_ends_with_access(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (control, admin_user) = (&world.control, &world.caller);
    let (ada, ben) = (world.member("ada@x.org", Some("x")).await, world.member("ben@x.org", Some("x")).await);
    // The creator gave their colleague's key as well, which the colleague has saved.
    shared_cluster(&world, &ada, &[KEY, GIVEN]).await;
    ssh_keys::add(control, &ben, KEY, None).await.unwrap();
    let colleague = log_in(control, KEY, "box").await.unwrap();
    let given = log_in(control, GIVEN, "box").await.unwrap();
    admin::disable_user(control, admin_user, ben.user.id.as_str(), true).await.unwrap();
    assert_eq!(why_ended(control, &colleague).await, Some(format!("user {} was disabled", ben.user.id)));
    assert_eq!(why_ended(control, &given).await, None);
    assert!(log_in(control, KEY, "box").await.is_none());
    admin::disable_user(control, admin_user, ada.user.id.as_str(), true).await.unwrap();
    assert_eq!(why_ended(control, &given).await, Some(format!("user {} was disabled", ada.user.id)));
    assert!(log_in(control, GIVEN, "box").await.is_none());
}

/// What a caller has open ends when another replica revokes their key, even if it was opened after the revocation.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn open_call_ends_with_access(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (ada, ben) = (world.member("ada@x.org", Some("x")).await, world.member("ben@x.org", Some("x")).await);
    let [early, other] = [&ada, &ben].map(|caller| world.control.hold_access(caller));
    let ended = |held: &tarn_control::HeldAccess| held.ended().now_or_never().map(|error| error.code);
    revocations::tick(&world.control).await.unwrap();
    assert_eq!((ended(&early), ended(&other)), (None, None));
    admin::revoke_key(&world.beside(), &world.caller, ada.key.as_str()).await.unwrap();
    revocations::tick(&world.control).await.unwrap();
    let late = world.control.hold_access(&ada);
    revocations::tick(&world.control).await.unwrap();
    assert_eq!((ended(&early), ended(&late), ended(&other)), (Some("invalid_key"), Some("invalid_key"), None));
}

/// The last use of a key is stored from time to time and not by every call, and never goes back.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn last_use_of_a_key_is_stored(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let other_replica = world.beside();
    let last_use = async |control: &Control| {
        let keys = admin::list_keys(control, &world.caller, None, None, None).await.unwrap().items;
        keys.into_iter().find(|key| key.id == world.caller.key).unwrap().last_used
    };
    let before = world.clock.now();
    world.control.authenticate(&world.admin).await.unwrap();
    let first = last_use(&world.control).await;
    assert!(first > Some(before), "{first:?}");
    assert_eq!(last_use(&other_replica).await, None, "no call writes");
    access_records::tick(&world.control).await.unwrap();
    assert_eq!(last_use(&other_replica).await, first);
    // The other replica saw an earlier use, and stores it later.
    other_replica.authenticate(&world.admin).await.unwrap();
    world.control.authenticate(&world.admin).await.unwrap();
    let last = last_use(&world.control).await;
    access_records::tick(&world.control).await.unwrap();
    access_records::tick(&other_replica).await.unwrap();
    assert_eq!(last_use(&world.control).await, last);
}

/// Refused logins become one event for each address and reason, and keys are recorded in the organization's scope.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn refused_logins_are_recorded(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (control, address) = (&world.control, "192.0.2.7:4711".parse::<SocketAddr>().unwrap());
    let new = admin::NewUser { email: "ada@x.org".into(), org_name: Some("x".into()) };
    let ada = admin::create_user(control, &world.caller, new).await.unwrap();
    admin::disable_user(control, &world.caller, ada.user.as_str(), true).await.unwrap();
    for key in ["tp-wrong", "tp-worse", &ada.api_key] {
        control.authenticate_from(key, Some(address.ip())).await.unwrap_err();
    }
    gateway::count_refused(control, address);
    access_records::tick(control).await.unwrap();
    access_records::tick(control).await.unwrap();
    let mut events = world.events("login.refused").await;
    events.sort_by_key(|event| event.detail["reason"].to_string());
    let seen: Vec<_> = events.iter().map(|event| (event.object.as_str(), event.detail["count"].as_u64())).collect();
    assert_eq!(seen, [("api", Some(2)), ("ssh", Some(1)), (ada.user.as_str(), Some(1))]);
    assert!(events.iter().all(|event| event.origin.address == Some(address.ip())), "{events:?}");
    let org = ada.org.unwrap().to_string();
    assert_eq!(events[2].scope, org);

    let key = admin::create_key(control, &world.caller, ada.user.as_str()).await.unwrap();
    admin::revoke_key(control, &world.caller, key.id.as_str()).await.unwrap();
    let (made, revoked) = (world.events("key.create").await, world.events("key.revoke").await);
    assert_eq!((made.len(), revoked.len()), (2, 1), "the first key of a user counts");
    assert!(made.iter().chain(&revoked).all(|event| event.scope == org), "{made:?} {revoked:?}");
}

/// A member who saved a copy of another member's key does not take it away from that member's clusters.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn removed_copy_leaves_clusters_of_others(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    shared_cluster(&world, &world.caller, &[GIVEN]).await;
    let member = world.member("member@example.org", Some("default")).await;
    let copy = ssh_keys::add(&world.control, &member, GIVEN, None).await.unwrap().key;
    ssh_keys::remove(&world.control, &member, copy.as_str()).await.unwrap();
    let removed = world.events("ssh_key.remove").await.remove(0);
    assert_eq!(removed.detail["withdrawn_from"], 0);
    // Its owner withdraws it.
    let own = ssh_keys::add(&world.control, &world.caller, GIVEN, None).await.unwrap().key;
    ssh_keys::remove(&world.control, &world.caller, own.as_str()).await.unwrap();
    assert_eq!(world.events("ssh_key.remove").await[1].detail["withdrawn_from"], 1);
}
