//! The management of object storage: who gets it, its keys, its buckets, and how it is given up again.

use std::time::Duration;

use axum::http::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tarn_control::reconcilers;
use tarn_model::ids::OrgId;
use tarn_model::objects::Details;
use tarn_objects::files::Sums;
use tarn_objects::put::{Condition, ObjectLocation};

use crate::support::harness::{Answer, Call, DatabaseKind, World};

/// The body with the keys replaced, which differ in every run.
fn without_keys(answer: &Answer, keys: &Answer) -> Value {
    let (id, secret) = (keys.text("access_key_id"), keys.text("secret_access_key"));
    let text = answer.body.to_string().replace(&secret, "SECRET").replace(&id, "KEY");
    serde_json::from_str(&text).unwrap()
}

async fn organization(world: &World, key: &str) -> OrgId {
    world.get(key, "/user/organization/info").await.text("org_id").parse().unwrap()
}

/// The organization that an access key opens, if it works.
async fn opened(world: &World, access_key: &str) -> Option<OrgId> {
    world.control.objects().holder_of(access_key).await.unwrap().map(|holder| holder.org)
}

/// Puts an object of five bytes, as S3 would.
async fn put(world: &World, org: &OrgId, bucket: &str) {
    let place = ObjectLocation { org: org.clone(), bucket: bucket.to_owned(), key: "greeting".to_owned() };
    let objects = world.control.objects();
    let mut intake = objects.intake(&place, Some(5), Sums { md5: true, ..Sums::default() }).await.unwrap();
    intake.push("hello".into()).await.unwrap();
    let received = intake.finish().await.unwrap();
    objects.put(&place, received, Details::default(), Condition::default()).await.unwrap();
}

/// An organization gets keys and creates buckets.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn organization_has_keys_and_buckets(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let (ada, ben) =
        (world.user("ada@example.org", Some("acme")).await, world.user("ben@example.org", Some("acme")).await);
    for path in ["credentials", "configure/aws", "configure/rclone", "bucket/list"] {
        let refused = world.get(&ada, &format!("/object-storage/{path}")).await;
        assert_eq!(refused.refusal(), (404, "object_storage_disabled".to_owned()), "{path}");
        assert!(refused.message().contains("`object-storage enable`"), "it says what to do");
    }
    let enabled = world.post(&ada, "/object-storage/enable", json!({})).await;
    assert_eq!((enabled.text("access_key_id").len(), enabled.text("secret_access_key").len()), (20, 40));
    insta::assert_json_snapshot!("enable_object_storage", without_keys(&enabled, &enabled));
    let again = world.post(&ben, "/object-storage/enable", json!({})).await;
    assert_ne!(again.text("access_key_id"), enabled.text("access_key_id"), "each member has a key of their own");
    let twice = world.post(&ben, "/object-storage/enable", json!({})).await;
    assert_eq!(twice.body["secret_access_key"], again.body["secret_access_key"]);
    for (name, path) in [
        ("object_storage_credentials", "credentials"),
        ("configure_aws", "configure/aws"),
        ("configure_rclone", "configure/rclone"),
    ] {
        let answer = world.get(&ben, &format!("/object-storage/{path}")).await;
        insta::assert_json_snapshot!(name, without_keys(&answer, &again));
    }

    let created = world.put(&ada, "/object-storage/bucket/create/data-2").await;
    assert_eq!(created.status, 201);
    insta::assert_json_snapshot!("create_bucket", created.body);
    assert_eq!(world.put(&ben, "/object-storage/bucket/create/data-1").await.status, 201);
    let twice = world.put(&ben, "/object-storage/bucket/create/data-1").await;
    assert_eq!(twice.refusal(), (409, "bucket_exists".to_owned()));
    insta::assert_json_snapshot!("list_buckets", world.get(&ben, "/object-storage/bucket/list").await.body);
    put(&world, &organization(&world, &ada).await, "data-1").await;
    insta::assert_json_snapshot!("object_storage_usage", world.get(&ben, "/object-storage/usage").await.body);
    let full = world.delete(&ada, "/object-storage/bucket/delete/data-1").await;
    assert_eq!(full.refusal(), (409, "bucket_not_empty".to_owned()));
    assert_eq!(world.delete(&ada, "/object-storage/bucket/delete/data-2").await.status, 204);
    let gone = world.delete(&ada, "/object-storage/bucket/delete/data-2").await;
    assert_eq!(gone.refusal(), (404, "not_found".to_owned()));
    assert_eq!(world.get(&ada, "/object-storage/bucket/list").await.body["buckets"], json!(["data-1"]));
}

/// Tenants have separate buckets.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn tenants_have_separate_buckets(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let (ada, eve) =
        (world.user("ada@example.org", Some("acme")).await, world.user("eve@example.org", Some("evil")).await);
    let keys = [&ada, &eve].map(|key| world.post(key, "/object-storage/enable", json!({})));
    let [first, second] = futures::future::join_all(keys).await.try_into().unwrap();
    assert_ne!(first.text("access_key_id"), second.text("access_key_id"));
    assert_eq!(world.put(&ada, "/object-storage/bucket/create/shared").await.status, 201);
    assert_eq!(world.get(&eve, "/object-storage/bucket/list").await.body["buckets"], json!([]));
    assert_eq!(
        world.put(&eve, "/object-storage/bucket/create/shared").await.status,
        201,
        "names are an organization's"
    );
    assert_eq!(world.delete(&eve, "/object-storage/bucket/delete/shared").await.status, 204);
    assert_eq!(world.get(&ada, "/object-storage/bucket/list").await.body["buckets"], json!(["shared"]));
}

/// Replaced keys open nothing.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn replaced_keys_open_nothing(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let ada = world.user("ada@example.org", Some("acme")).await;
    assert_eq!(
        world.post(&ada, "/object-storage/rotate-keys", json!({})).await.refusal(),
        (404, "object_storage_disabled".to_owned())
    );
    let old = world.post(&ada, "/object-storage/enable", json!({})).await.text("access_key_id");
    let org = organization(&world, &ada).await;
    assert_eq!(opened(&world, &old).await, Some(org.clone()));
    let once = || {
        let call = Call::new(Method::POST, "/object-storage/rotate-keys").key(&ada);
        world.call(call.header("idempotency-key", b"new-keys").json(&json!({})))
    };
    let (rotated, again) = (once().await, once().await);
    assert_eq!((rotated.status, &rotated.body), (200, &again.body), "the same call happens once");
    let new = rotated.text("access_key_id");
    assert_eq!(opened(&world, &old).await, None);
    assert_eq!(opened(&world, &new).await, Some(org));
    assert_eq!(world.get(&ada, "/object-storage/credentials").await.text("access_key_id"), new);
    let events = world.get(&world.admin, "/admin/event/list").await.body.to_string();
    assert!(events.contains("object_storage.rotate_keys") && events.contains(&old), "who did it is known");
    assert!(!events.contains(&rotated.text("secret_access_key")), "secrets are in no event");
}

/// Disabling is refused while buckets hold objects, unless it is forced.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn disable_needs_force_with_objects(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let ada = world.user("ada@example.org", Some("acme")).await;
    let missing = world.delete(&ada, "/object-storage/disable").await;
    assert_eq!(missing.refusal(), (404, "object_storage_disabled".to_owned()));
    let key = world.post(&ada, "/object-storage/enable", json!({})).await.text("access_key_id");
    assert_eq!(world.put(&ada, "/object-storage/bucket/create/data").await.status, 201);
    put(&world, &organization(&world, &ada).await, "data").await;
    for query in ["", "?force=False", "?force="] {
        let refused = world.delete(&ada, &format!("/object-storage/disable{query}")).await;
        assert_eq!(refused.refusal(), (409, "object_storage_not_empty".to_owned()));
        assert!(refused.message().contains("hold 1 object"), "{}", refused.message());
    }
    assert_eq!(world.delete(&ada, "/object-storage/disable?force=perhaps").await.status, 422);

    let disabled = world.delete(&ada, "/object-storage/disable?force=True").await;
    insta::assert_json_snapshot!("disable_object_storage", disabled.body);
    assert_eq!(opened(&world, &key).await, None, "the keys stop at once");
    assert_eq!(
        world.post(&ada, "/object-storage/enable", json!({})).await.refusal(),
        (409, "object_storage_closing".to_owned())
    );
    assert_eq!(world.get(&ada, "/object-storage/usage").await.body["enabled"], json!(false));
    reconcilers::objects::empty_closed_accounts(&world.control).await.unwrap();
    let usage = world.get(&ada, "/object-storage/usage").await.body;
    assert_eq!((&usage["bytes"], &usage["buckets"]), (&json!(0), &json!(0)));
    let enabled = world.post(&ada, "/object-storage/enable", json!({})).await;
    assert_ne!(enabled.text("access_key_id"), key, "it begins anew");
    assert_eq!(world.get(&ada, "/object-storage/bucket/list").await.body["buckets"], json!([]));
    let disabled = world.delete(&ada, "/object-storage/disable").await;
    assert_eq!(disabled.status, 200, "without objects nothing is lost");
}

/// Between the commit and the removal of the old key a disconnect must not stop the call.
#[tokio::test(flavor = "multi_thread")]
async fn keys_stop_in_background() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let ada = world.user("ada@example.org", Some("acme")).await;
    let mut key = world.post(&ada, "/object-storage/enable", json!({})).await.text("access_key_id");
    let mut replaced = Vec::new();
    for steps in 1..=12 {
        // The client disconnects after this many polls of the call; after some of them the change is being committed.
        let mut rotation = Box::pin(world.post(&ada, "/object-storage/rotate-keys", json!({})));
        let mut taken = 0;
        while taken < steps && futures::poll!(&mut rotation).is_pending() {
            taken += 1;
        }
        drop(rotation);
        // Gives it a moment. Whether it is done by now does not matter: then it is seen in a later round, or not at
        // all.
        assert_eq!(world.put(&ada, &format!("/object-storage/bucket/create/after-{steps}")).await.status, 201);
        let now = world.get(&ada, "/object-storage/credentials").await.text("access_key_id");
        if now != key {
            replaced.push(std::mem::replace(&mut key, now));
        }
    }
    assert!(!replaced.is_empty(), "no call came as far as the database");
    for old in &replaced {
        eventually(async || opened(&world, old).await.is_none()).await;
    }
    eventually(async || {
        let key = world.get(&ada, "/object-storage/credentials").await.text("access_key_id");
        opened(&world, &key).await.is_some()
    })
    .await;
}

/// Waits until it is so.
async fn eventually(is_so: impl AsyncFn() -> bool) {
    for _ in 0..6000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it was not so for half a minute");
}

/// A deleted bucket drops its uploads.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn deleted_bucket_drops_uploads(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let ada = world.user("ada@example.org", Some("acme")).await;
    world.post(&ada, "/object-storage/enable", json!({})).await;
    let (org, objects) = (organization(&world, &ada).await, world.control.objects());
    let place = ObjectLocation { org, bucket: "data".to_owned(), key: "large".to_owned() };
    let begin = async || {
        assert_eq!(world.put(&ada, "/object-storage/bucket/create/data").await.status, 201);
        let upload = objects.begin_upload(&place, Details::default(), None).await.unwrap();
        let mut intake = objects.intake_part(&place, &upload, 1, None, Sums::default()).await.unwrap();
        intake.push("hello".into()).await.unwrap();
        let received = intake.finish().await.unwrap();
        objects.put_part(&place, upload.id.as_str(), 1, received, None).await.unwrap();
    };
    let delete = async || {
        let call = Call::new(Method::DELETE, "/object-storage/bucket/delete/data").key(&ada);
        world.call(call.header("idempotency-key", b"gone")).await.status
    };
    begin().await;
    assert_eq!(delete().await, 204);
    assert_eq!(world.get(&ada, "/object-storage/usage").await.body["bytes"], json!(0));
    // The same call again is one that was carried out, and does not touch what there is now.
    begin().await;
    assert_eq!(delete().await, 204);
    assert_eq!(world.get(&ada, "/object-storage/usage").await.body["bytes"], json!(5));
}

/// Bucket names follow the rules of S3.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn bucket_names_follow_rules(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let ada = world.user("ada@example.org", Some("acme")).await;
    world.post(&ada, "/object-storage/enable", json!({})).await;
    let long = "a".repeat(64);
    for name in ["ab", "Data", "a_b", "192.168.0.1", "-ab", "a..b", "%2e%2e", "a%00b", "%ff%fe%fd", "xn--a", &long] {
        let refused = world.put(&ada, &format!("/object-storage/bucket/create/{name}")).await;
        assert_eq!(refused.refusal(), (400, "invalid_bucket_name".to_owned()), "{name}");
        let missing = world.delete(&ada, &format!("/object-storage/bucket/delete/{name}")).await;
        assert_eq!(missing.refusal(), (404, "not_found".to_owned()), "{name}");
    }
    let deep = world.put(&ada, "/object-storage/bucket/create/a/b").await;
    assert_eq!(deep.refusal(), (404, "unknown_route".to_owned()));
    assert_eq!(world.get(&ada, "/object-storage/bucket/list").await.body["buckets"], json!([]));
}
