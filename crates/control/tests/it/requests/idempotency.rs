//! A repeated call takes effect once.

use std::time::Duration;

use rstest::rstest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tarn_control::operations::Accepted;
use tarn_control::operations::admin::{self, NewUser};
use tarn_control::operations::clusters::{self, NewCluster};
use tarn_control::operations::users::{self, PreferencesEdit};
use tarn_control::testing::world;
use tarn_control::{Caller, Idempotency, Listing, reconcilers};
use tarn_model::ids::{ClusterId, VolumeId};
use tarn_model::users::Owner;
use tarn_store::testing::DatabaseKind;
use tarn_store::usage;

fn once(caller: &Caller, fingerprint: u8, seal: u8) -> Caller {
    let wish = Idempotency { key: "again".into(), fingerprint: [fingerprint; 32], seal: [seal; 32] };
    Caller { idempotency: Some(wish), ..caller.clone() }
}

/// A repeated call returns the same response.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn repeated_call_returns_same_response(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let new = || NewCluster { instance_type: "1xCPU".into(), ..Default::default() };
    let me = once(&world.caller, 1, 9);
    let calls = (0..8).map(|_| clusters::create(&world.control, &me, new()));
    let answers: Vec<_> = futures::future::join_all(calls).await.into_iter().map(|answer| answer.unwrap()).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    let page = clusters::list(&world.control, &world.caller, Listing::default()).await.unwrap();
    assert_eq!(page.items.len(), 1);

    let other = clusters::create(&world.control, &once(&world.caller, 2, 9), new()).await.unwrap_err();
    assert_eq!(other.code, "idempotency_key_reused");
    let stranger = clusters::create(&world.control, &once(&world.caller, 1, 8), new()).await.unwrap_err();
    assert_eq!(stranger.code, "idempotency_other_key", "the outcome is sealed with the first caller's secret");
}

/// An API key that is shown once is not readable in the database.
#[tokio::test(flavor = "multi_thread")]
async fn database_reveals_no_api_key() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let me = once(&world.caller, 1, 9);
    let new = || NewUser { email: "ada@example.org".into(), org_name: None };
    let first = admin::create_user(&world.control, &me, new()).await.unwrap();
    let second = admin::create_user(&world.control, &me, new()).await.unwrap();
    assert_eq!(first.api_key, second.api_key);
    let entries = std::fs::read_dir(world.fresh.dir.path()).unwrap().map(|entry| entry.unwrap().path());
    for file in entries.filter(|path| path.is_file()) {
        let bytes = std::fs::read(file).unwrap();
        assert!(!bytes.windows(first.api_key.len()).any(|window| window == first.api_key.as_bytes()));
    }
}

/// After a day an idempotency key can be used again.
#[tokio::test(flavor = "multi_thread")]
async fn idempotency_key_expires_after_a_day() {
    let Some(world) = world(DatabaseKind::Sqlite).await else {
        return;
    };
    let new = || NewCluster { instance_type: "1xCPU".into(), ..Default::default() };
    let me = once(&world.caller, 1, 9);
    let first = clusters::create(&world.control, &me, new()).await.unwrap();
    world.wait(Duration::from_secs(24 * 3600 + 1)).await;
    let second = clusters::create(&world.control, &me, new()).await.unwrap();
    assert_ne!(first.cluster, second.cluster);
    world.wait(Duration::from_secs(24 * 3600 + 1)).await;
    assert_eq!(reconcilers::expiry::tick(&world.control).await.unwrap(), Duration::ZERO, "something was removed");
    assert!(reconcilers::expiry::tick(&world.control).await.unwrap() > Duration::ZERO);
}

/// An organization keeps a limited number of outcomes, whichever of its members sent the calls; calls without a key, and
/// other organizations, are not affected.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn kept_outcomes_are_limited(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let with_key = |caller: &Caller, key: &str| {
        let wish = Idempotency { key: key.into(), fingerprint: [1; 32], seal: [9; 32] };
        Caller { idempotency: Some(wish), ..caller.clone() }
    };
    let edit = |on| PreferencesEdit { notify_email_cluster_destroy: Some(on), ..Default::default() };
    users::edit_preferences(&world.control, &with_key(&world.caller, "first"), edit(true)).await.unwrap();
    // Another member of the organization used up the rest.
    let owner = Owner { user: "u-00000000abcd".parse().unwrap(), org: world.caller.user.org.clone() };
    let fill = world.store.write(move |tx| {
        let stored = tarn_store::idempotency::StoredOutcome { fingerprint: vec![1], outcome: vec![1] };
        for number in 1..10_000 {
            let expired = tx.now().before(Duration::from_secs(24 * 3600));
            tarn_store::idempotency::save_outcome(tx, &owner, &format!("n{number}"), &stored, expired)?;
        }
        Ok::<_, tarn_store::Error>(())
    });
    fill.await.unwrap();
    let refused =
        users::edit_preferences(&world.control, &with_key(&world.caller, "more"), edit(false)).await.unwrap_err();
    assert_eq!(refused.code, "limit_reached", "{}", refused.message);
    let kept = users::preferences(&world.control, &world.caller).await.unwrap();
    assert!(kept.notify_email_cluster_destroy, "a refused call changes nothing");
    users::edit_preferences(&world.control, &with_key(&world.caller, "first"), edit(true)).await.unwrap();
    users::edit_preferences(&world.control, &world.caller, edit(false)).await.unwrap();
    let stranger = world.other_tenant().await;
    users::edit_preferences(&world.control, &with_key(&stranger, "more"), edit(true)).await.unwrap();

    world.wait(Duration::from_secs(24 * 3600 + 1)).await;
    while reconcilers::expiry::tick(&world.control).await.unwrap() == Duration::ZERO {}
    users::edit_preferences(&world.control, &with_key(&world.caller, "more"), edit(true)).await.unwrap();
    let owner = world.caller.user.owner();
    let scope = owner.scope();
    let read =
        world.store.read(|tx| Ok::<_, tarn_store::Error>((usage::counters(tx, scope)?, usage::recount(tx, scope)?)));
    let (counters, recount) = read.await.unwrap();
    assert_eq!((counters[2], recount[2]), (1, 1));
}

/// Outcomes that an older version stored are read and written in the same form.
#[test]
fn stored_outcomes_keep_their_form() {
    fn check<C: Serialize + DeserializeOwned, V: Serialize + DeserializeOwned>(cluster: &str, volume: &str) {
        let old = format!(
            r#"{{"cluster":{cluster},"volume":{volume},"instances":[],"request":"r-000000000001","message":"text"}}"#
        );
        let read: Accepted<C, V> = serde_json::from_str(&old).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), old);
    }
    let (cluster, volume) = (r#""c-000000000001""#, r#""s-000000000001""#);
    check::<ClusterId, ()>(cluster, "null");
    check::<(), VolumeId>("null", volume);
    check::<ClusterId, VolumeId>(cluster, volume);
    serde_json::from_str::<Accepted>(r#"{"cluster":null,"volume":null,"instances":[]}"#).unwrap_err();
}
