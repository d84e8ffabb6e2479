//! What the event log learns of S3: keys that are refused, and buckets that come and go.

use rstest::rstest;
use serde_json::json;
use tarn_store::events::{self, Recorded};
use tarn_store::testing::{DatabaseKind, set_legacy_key};

use crate::s3::harness::{Call, Harness, assert_refused};

const ADDRESS: &str = "192.0.2.7";

fn from_address(call: Call) -> Call {
    Call { from: Some(ADDRESS.parse().unwrap()), ..call }
}

/// An unknown key and a wrong signature are reported with their address, in headers and URLs; other refusals are not.
#[tokio::test]
async fn refused_keys_are_reported() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let unknown = |mut call: Call| {
        call.signer.access_key = "TARNAAAAAAAAAAAAAAAA".to_owned();
        call
    };
    let wrong = |mut call: Call| {
        call.signer.secret = "another".to_owned();
        call
    };
    let call = || from_address(harness.call("GET", "/photos"));
    for (response, code) in [
        (unknown(call()).send().await, "InvalidAccessKeyId"),
        (unknown(call()).presigned(60).send_unchanged().await, "InvalidAccessKeyId"),
        (wrong(call()).send().await, "SignatureDoesNotMatch"),
        (wrong(call()).presigned(60).send_unchanged().await, "SignatureDoesNotMatch"),
    ] {
        assert_refused(&response, 403, code);
    }
    assert_refused(&unknown(harness.call("HEAD", "/photos")).send().await, 403, "InvalidAccessKeyId");
    assert_refused(&call().send_unchanged().await, 403, "AccessDenied");
    assert_eq!(call().send().await.status, 200);
    let from = Some(ADDRESS.parse().unwrap());
    let (key, signature) = ("invalid_key", "invalid_signature");
    let reported = [(key, from), (key, from), (signature, from), (signature, from), (key, None)];
    assert_eq!(*harness.refused.lock(), reported);
}

async fn bucket_events(harness: &Harness) -> Vec<Recorded> {
    harness.base.store.read(|tx| events::after(tx, 0, 100)).await.unwrap()
}

/// Creating and deleting a bucket are events, with the user, the key, the address and the id of the call.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn buckets_that_come_and_go_are_recorded(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(harness) = Harness::new(database).await else { return };
    let created = from_address(harness.call("PUT", "/photos")).send().await;
    let deleted = from_address(harness.call("DELETE", "/photos")).send().await;
    assert_eq!((created.status, deleted.status), (200, 204));
    assert_refused(&harness.call("DELETE", "/photos").send().await, 404, "NoSuchBucket");
    let events = bucket_events(&harness).await;
    let verbs: Vec<&str> = events.iter().map(|event| event.verb.as_str()).collect();
    assert_eq!(verbs, ["object_storage.create_bucket", "object_storage.delete_bucket"]);
    for (event, response) in events.iter().zip([created, deleted]) {
        assert_eq!((&event.actor, &event.scope), (&harness.user.id.to_string(), &"o-000000000001".to_owned()));
        assert_eq!((&event.object, &event.detail), (&events[0].object, &json!({ "name": "photos" })));
        let origin = &event.origin;
        assert_eq!(origin.key.as_ref(), Some(&harness.credentials.access_key_id));
        assert_eq!(origin.address, Some(ADDRESS.parse().unwrap()));
        assert_eq!(origin.call.as_deref(), response.header("x-amz-request-id"));
    }
}

/// With the key of a whole organization, the organization is who did it.
#[tokio::test]
async fn legacy_key_acts_for_its_organization() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    let org = harness.user.org.clone().unwrap();
    harness.base.store.write(move |tx| set_legacy_key(tx, &org, "TARNSHARED")).await.unwrap();
    let shared = harness.objects.credentials("TARNSHARED");
    assert_eq!(harness.call("PUT", "/photos").signed_by(&shared).send().await.status, 200);
    let event = bucket_events(&harness).await.remove(0);
    assert_eq!((event.actor.as_str(), event.origin.key.as_deref()), ("o-000000000001", Some("TARNSHARED")));
}
