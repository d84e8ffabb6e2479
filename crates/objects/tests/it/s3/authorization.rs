//! Authorization of calls.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use rstest::rstest;
use tarn_model::users::User;
use tarn_objects::keys;
use tarn_store::testing::{DatabaseKind, move_user};
use tarn_store::{Tx, users};

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

/// A header that is not signed cannot be added to a signed call, however the list of signed headers is disguised.
#[tokio::test]
async fn unsigned_header_cannot_be_added() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "secret", "hidden").await;
    for region in ["us-east-1", "eu.west"] {
        for (from, to) in [
            ("", ""),
            ("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA256SignedHeaders=host;x-amz-copy-source, "),
            ("AWS4-HMAC-SHA256 ", "SignedHeaders=host;x-amz-copy-source, "),
            ("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA256\u{e9} "),
            ("SignedHeaders=", "SignedHeaders=X-Amz-Copy-Source;"),
        ] {
            let mut put = harness.call("PUT", "/photos/a");
            put.signer.region = region.to_owned();
            let (put, _) = put.sign("UNSIGNED-PAYLOAD");
            let (_, signed) = put.headers.iter().find(|(name, _)| name == "authorization").unwrap();
            let disguised = signed.replacen(from, to, 1);
            let put = put.header("authorization", &disguised).header("x-amz-copy-source", "/photos/secret");
            let refused = put.send_unchanged().await;
            assert!([400, 403].contains(&refused.status), "{to}: {} {}", refused.status, refused.text());
        }
    }
    assert_refused(&harness.get("photos", "a").await, 404, "NoSuchKey");
}

/// A presigned URL whose signature was changed in any way is refused as a wrong one.
#[tokio::test]
async fn altered_signature_of_url_is_forbidden() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", "1").await;
    let url = || harness.call("GET", "/photos/a").presigned(60);
    let query = url().query;
    let (start, signature) = query.split_once("&X-Amz-Signature=").unwrap();
    for altered in [
        String::new(),
        "0".to_owned(),
        signature[1..].to_owned(),
        format!("{signature}0"),
        format!("{signature}&X-Amz-Signature={signature}"),
        signature.to_ascii_uppercase() + "A",
        "z".repeat(64),
        "%ff".to_owned(),
        format!("{signature}%00"),
    ] {
        let mut call = url();
        call.query = format!("{start}&X-Amz-Signature={altered}");
        assert_refused(&call.send_unchanged().await, 403, "SignatureDoesNotMatch");
    }
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

/// A key, and the URLs that were signed with it, stop when it is revoked, and when its user is disabled or moved.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn key_ends_with_access_of_its_user(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(revoke, disable, move_away)] change: fn(&mut Tx<'_>, &User) -> tarn_objects::Result<()>,
) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("photos").await;
    harness.put("photos", "a", "1").await;
    let url = || harness.call("GET", "/photos/a").presigned(600);
    assert_eq!((harness.get("photos", "a").await.status, url().send_unchanged().await.status), (200, 200));
    harness.change(change).await;
    assert_refused(&harness.get("photos", "a").await, 403, "InvalidAccessKeyId");
    assert_refused(&url().send_unchanged().await, 403, "InvalidAccessKeyId");
    assert_refused(&harness.call("PUT", "/photos/b").body("2").send().await, 403, "InvalidAccessKeyId");
}

/// A call whose body is still arriving, and a response that is still being read, end with the access of the user.
#[tokio::test(start_paused = true)]
async fn open_calls_end_with_access() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "large", vec![7; 20 << 20]).await;
    let (call, _) = harness.call("PUT", "/photos/slow").header("content-length", "1000").sign("UNSIGNED-PAYLOAD");
    let first = stream::iter([Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"1")))]);
    let arriving = tokio::spawn(call.send_body(StreamBody::new(first.chain(stream::pending()))));
    let (call, _) = harness.call("GET", "/photos/large").sign("UNSIGNED-PAYLOAD");
    let mut reading = call.send_body(Empty::<Bytes>::new()).await;
    assert_eq!(reading.status(), 200);
    reading.body_mut().frame().await.expect("it begins").unwrap();
    harness.change(disable).await;
    assert_eq!(arriving.await.unwrap().status(), 403);
    // Time is paused, so this only lets the response look its key up again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut frames = 0;
    let broken = loop {
        match reading.body_mut().frame().await {
            Some(Ok(_)) => frames += 1,
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(broken, "the response ends early, not after {frames} frames");
    harness.change(|tx, user| Ok(users::set_disabled(tx, &user.id, false)?)).await;
    assert_eq!(harness.get("photos", "slow").await.status, 404, "nothing was stored");
}

pub(crate) fn revoke(tx: &mut Tx<'_>, user: &User) -> tarn_objects::Result<()> {
    let key = keys::working(tx, &user.id, user.org.as_ref().unwrap())?.remove(0);
    keys::revoke(tx, &key).map(drop)
}

pub(crate) fn disable(tx: &mut Tx<'_>, user: &User) -> tarn_objects::Result<()> {
    Ok(users::set_disabled(tx, &user.id, true)?)
}

pub(crate) fn move_away(tx: &mut Tx<'_>, user: &User) -> tarn_objects::Result<()> {
    Ok(move_user(tx, &user.id, Some(&"o-000000000009".parse().unwrap()))?)
}

/// A signature for another service is refused, in the header and in a URL.
#[tokio::test]
async fn other_service_is_refused() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let call = || {
        let mut call = harness.call("HEAD", "/photos");
        call.signer.service = "sts";
        call
    };
    assert_refused(&call().send().await, 400, "AuthorizationHeaderMalformed");
    assert_refused(&call().presigned(60).send_unchanged().await, 400, "AuthorizationQueryParametersError");
    assert_eq!(harness.call("HEAD", "/photos").send().await.status, 200);
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
