//! URLs that are signed by Signature Version 2, as boto3 signs them without a known region.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rstest::rstest;
use tarn_model::users::User;
use tarn_store::Tx;
use tarn_store::testing::DatabaseKind;

use crate::s3::authorization::{disable, move_away, revoke};
use crate::s3::harness::{Call, Harness, assert_refused};

#[allow(clippy::disallowed_methods, reason = "s3s asks the system for the time")]
fn in_a_minute() -> u64 {
    (SystemTime::now() + Duration::from_secs(60)).duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn url(harness: &Harness, method: &str, target: &str) -> Call {
    harness.call(method, target).presigned_by_old_version(in_a_minute())
}

/// A URL opens what it names, for its method, with its headers, until it expires.
#[tokio::test]
async fn old_url_opens_only_its_object() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let put = url(&harness, "PUT", "/photos/a%20b").header("content-length", "5").body("hello");
    assert_eq!(put.send_unchanged().await.status, 200);
    let get = || url(&harness, "GET", "/photos/a%20b?response-content-type=text/plain");
    let got = get().send_unchanged().await;
    assert_eq!((got.status, got.text().as_str(), got.header("content-type")), (200, "hello", Some("text/plain")));
    assert_eq!(get().header("range", "bytes=1-2").send_unchanged().await.text(), "el");
    for (from, to) in
        [("a%20b", "other"), ("text/plain", "text/html"), ("Signature=", "Signature=A"), ("Expires=", "Expires=9")]
    {
        let mut altered = get();
        altered.path = altered.path.replace(from, to);
        altered.query = altered.query.replace(from, to);
        assert_refused(&altered.send_unchanged().await, 403, "SignatureDoesNotMatch");
    }
    for method in ["HEAD", "PUT", "DELETE"] {
        let mut altered = get();
        altered.method = method.to_owned();
        assert_eq!(altered.send_unchanged().await.status, 403);
    }
    let typed = url(&harness, "PUT", "/photos/c").header("content-type", "image/png").body("x");
    assert_refused(&typed.send_unchanged().await, 403, "SignatureDoesNotMatch");
    let expired = harness.call("GET", "/photos/a%20b").presigned_by_old_version(in_a_minute() - 61);
    assert_refused(&expired.send_unchanged().await, 403, "AccessDenied");
}

/// Nothing can be added to a URL that changes what it does.
#[tokio::test]
async fn old_url_cannot_be_extended() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", "hello").await;
    for more in ["tagging", "tagging&tagging", "versionId=1&versionId=2", "attributes", "uploads&uploads", "retention"]
    {
        for method in ["GET", "PUT", "DELETE"] {
            let mut call = url(&harness, method, "/photos/a");
            call.query = format!("{}&{more}", call.query);
            let refused = call.send_unchanged().await;
            assert_eq!(refused.status, 403, "{method} {more}: {}", refused.text());
        }
    }
    let copy = url(&harness, "PUT", "/photos/b").header("x-amz-copy-source", "/photos/a");
    assert_refused(&copy.send_unchanged().await, 403, "SignatureDoesNotMatch");
    let tagged = url(&harness, "PUT", "/photos/b").header("x-amz-tagging", "a=b").body("x");
    assert_refused(&tagged.send_unchanged().await, 403, "SignatureDoesNotMatch");
    assert_refused(&harness.get("photos", "b").await, 404, "NoSuchKey");
    assert_eq!(harness.get("photos", "a").await.text(), "hello");
}

/// Headers that boto3 writes into the URL apply to its call.
#[tokio::test]
async fn headers_in_old_url_apply() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let signed = || {
        let call = harness.call("PUT", "/photos/a").header("content-type", "image/png").header("x-amz-meta-who", "ada");
        call.presigned_by_old_version(in_a_minute()).header("content-length", "5").body("hello")
    };
    assert_eq!(signed().send_unchanged().await.status, 200);
    let head = harness.call("HEAD", "/photos/a").send().await;
    assert_eq!((head.header("content-type"), head.header("x-amz-meta-who")), (Some("image/png"), Some("ada")));
    assert_eq!(
        signed().header("content-type", "image/png").send_unchanged().await.status,
        200,
        "the client sends it, too"
    );
    let other = signed().header("content-type", "image/gif").send_unchanged().await;
    assert_refused(&other, 403, "SignatureDoesNotMatch");
}

/// A URL ends with the key that signed it.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn old_url_ends_with_access_of_its_user(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(revoke, disable, move_away)] change: fn(&mut Tx<'_>, &User) -> tarn_objects::Result<()>,
) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("photos").await;
    harness.put("photos", "a", "1").await;
    assert_eq!(url(&harness, "GET", "/photos/a").send_unchanged().await.status, 200);
    harness.change(change).await;
    assert_refused(&url(&harness, "GET", "/photos/a").send_unchanged().await, 403, "InvalidAccessKeyId");
}
