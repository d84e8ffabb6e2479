//! Authorization of calls.

use std::time::{Duration, SystemTime};

use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Harness, assert_refused};
use crate::s3::signer::amz_date;

/// Only signed calls with a valid key are admitted.
#[tokio::test]
async fn unsigned_calls_are_refused() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", "1").await;

    assert_refused(&harness.call("GET", "/photos/a").send_unchanged().await, 403, "AccessDenied");
    let mut wrong = harness.call("GET", "/photos/a");
    wrong.signer.secret = "another".to_owned();
    let wrong = wrong.send().await;
    assert_refused(&wrong, 403, "SignatureDoesNotMatch");
    assert!(wrong.xml("RequestId").is_some() && wrong.header("x-amz-request-id").is_some());
    assert_eq!(wrong.xml("Resource").as_deref(), Some("/photos/a"));
    let mut unknown = harness.call("GET", "/photos/a");
    unknown.signer.access_key = "TARNAAAAAAAAAAAAAAAA".to_owned();
    assert_refused(&unknown.send().await, 403, "InvalidAccessKeyId");
    let mut late = harness.call("GET", "/photos/a");
    late.signer.date = amz_date(now() - Duration::from_secs(3600));
    assert_refused(&late.send().await, 403, "RequestTimeTooSkewed");
    let old = harness.call("GET", "/photos/a").header("authorization", "AWS key:signature").header("date", "now");
    assert_refused(&old.send_unchanged().await, 400, "InvalidRequest");
}

/// Organizations do not see each other's buckets.
#[tokio::test]
async fn organizations_are_isolated() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    let other = harness.other().await;
    harness.bucket("photos").await;
    harness.put("photos", "a", "mine").await;
    assert_refused(&harness.call("GET", "/photos/a").signed_by(&other).send().await, 404, "NoSuchBucket");
    assert_eq!(harness.call("PUT", "/photos").signed_by(&other).send().await.status, 200, "names are their own");
    assert_refused(&harness.call("GET", "/photos/a").signed_by(&other).send().await, 404, "NoSuchKey");
    let copy = harness.call("PUT", "/photos/b").header("x-amz-copy-source", "/photos/a").signed_by(&other);
    assert_refused(&copy.send().await, 404, "NoSuchKey");
    assert_eq!(harness.get("photos", "a").await.text(), "mine");
}

/// A presigned URL opens only what it names.
#[tokio::test]
async fn presigned_url_opens_only_its_object() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "secret", "hidden").await;
    let put = harness.call("PUT", "/photos/a").presigned(60).header("content-length", "5").body("hello");
    assert_eq!(put.send_unchanged().await.status, 200);
    let get = harness.call("GET", "/photos/a?response-content-type=text%2Fplain").presigned(60).send_unchanged().await;
    assert_eq!((get.status, get.text().as_str(), get.header("content-type")), (200, "hello", Some("text/plain")));

    let mut altered = harness.call("GET", "/photos/a").presigned(60);
    altered.path = "/photos/secret".to_owned();
    assert_refused(&altered.send_unchanged().await, 403, "SignatureDoesNotMatch");
    let copy = harness.call("PUT", "/photos/a").presigned(60).header("x-amz-copy-source", "/photos/secret");
    assert_refused(&copy.send_unchanged().await, 403, "AccessDenied");
    let mut expired = harness.call("GET", "/photos/a");
    expired.signer.date = amz_date(now() - Duration::from_secs(120));
    assert_refused(&expired.presigned(60).send_unchanged().await, 403, "AccessDenied");
    let eternal = harness.call("GET", "/photos/a").presigned(604_801).send_unchanged().await;
    assert_refused(&eternal, 400, "AuthorizationQueryParametersError");
}

/// When a client expects 100-continue and its body is not read, the connection is closed.
#[tokio::test]
async fn unread_expected_body_closes_connection() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let put = |bucket: &str| {
        harness.call("PUT", &format!("/{bucket}/a")).header("expect", "100-continue").body("hello").send()
    };
    let refusal = put("absent").await;
    assert_refused(&refusal, 404, "NoSuchBucket");
    assert_eq!(refusal.header("connection"), Some("close"));
    let taken = put("photos").await;
    assert_eq!((taken.status, taken.header("connection")), (200, None));
    // An empty body is never requested, and a client that waited for 100-continue must not reuse the connection.
    let empty = harness.call("PUT", "/photos/empty").header("expect", "100-continue").send().await;
    assert_eq!((empty.status, empty.header("connection")), (200, Some("close")));
}

/// Replaced access keys open nothing.
#[tokio::test]
async fn replaced_keys_open_nothing() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.rotate().await;
    assert_refused(&harness.call("HEAD", "/photos").send().await, 403, "InvalidAccessKeyId");
}

/// Forms are refused before they are read.
#[tokio::test]
async fn forms_are_refused_unread() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    for kind in ["multipart/form-data; boundary=x", "Multipart/Form-Data; boundary=x"] {
        let form = harness.call("POST", "/photos").header("content-type", kind).body("--x--");
        assert_refused(&form.send_unchanged().await, 501, "NotImplemented");
    }
}

#[allow(clippy::disallowed_methods, reason = "a signature is only good near the present, and s3s asks the system")]
fn now() -> SystemTime {
    SystemTime::now()
}
