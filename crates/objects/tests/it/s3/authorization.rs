//! Who gets in, and with what.

use std::time::{Duration, SystemTime};

use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Harness, refused};
use crate::s3::signer::amz_date;

#[tokio::test]
async fn only_those_who_sign_get_in() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", "1").await;

    refused(&harness.call("GET", "/photos/a").send_as_it_is().await, 403, "AccessDenied");
    let mut wrong = harness.call("GET", "/photos/a");
    wrong.signer.secret = "another".to_owned();
    let wrong = wrong.send().await;
    refused(&wrong, 403, "SignatureDoesNotMatch");
    assert!(wrong.xml("RequestId").is_some() && wrong.header("x-amz-request-id").is_some());
    assert_eq!(wrong.xml("Resource").as_deref(), Some("/photos/a"));
    let mut unknown = harness.call("GET", "/photos/a");
    unknown.signer.access_key = "TARNAAAAAAAAAAAAAAAA".to_owned();
    refused(&unknown.send().await, 403, "InvalidAccessKeyId");
    let mut late = harness.call("GET", "/photos/a");
    late.signer.date = amz_date(now() - Duration::from_secs(3600));
    refused(&late.send().await, 403, "RequestTimeTooSkewed");
    let old = harness.call("GET", "/photos/a").header("authorization", "AWS key:signature").header("date", "now");
    refused(&old.send_as_it_is().await, 400, "InvalidRequest");
}

#[tokio::test]
async fn organizations_do_not_see_each_other() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    let other = harness.other().await;
    harness.bucket("photos").await;
    harness.put("photos", "a", "mine").await;
    refused(&harness.call("GET", "/photos/a").signed_by(&other).send().await, 404, "NoSuchBucket");
    assert_eq!(harness.call("PUT", "/photos").signed_by(&other).send().await.status, 200, "names are their own");
    refused(&harness.call("GET", "/photos/a").signed_by(&other).send().await, 404, "NoSuchKey");
    let copy = harness.call("PUT", "/photos/b").header("x-amz-copy-source", "/photos/a").signed_by(&other);
    refused(&copy.send().await, 404, "NoSuchKey");
    assert_eq!(harness.get("photos", "a").await.text(), "mine");
}

#[tokio::test]
async fn a_presigned_url_opens_what_it_names_and_nothing_else() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "secret", "hidden").await;
    let put = harness.call("PUT", "/photos/a").presigned(60).header("content-length", "5").body("hello");
    assert_eq!(put.send_as_it_is().await.status, 200);
    let get = harness.call("GET", "/photos/a?response-content-type=text%2Fplain").presigned(60).send_as_it_is().await;
    assert_eq!((get.status, get.text().as_str(), get.header("content-type")), (200, "hello", Some("text/plain")));

    let mut altered = harness.call("GET", "/photos/a").presigned(60);
    altered.path = "/photos/secret".to_owned();
    refused(&altered.send_as_it_is().await, 403, "SignatureDoesNotMatch");
    let copy = harness.call("PUT", "/photos/a").presigned(60).header("x-amz-copy-source", "/photos/secret");
    refused(&copy.send_as_it_is().await, 403, "AccessDenied");
    let mut expired = harness.call("GET", "/photos/a");
    expired.signer.date = amz_date(now() - Duration::from_secs(120));
    refused(&expired.presigned(60).send_as_it_is().await, 403, "AccessDenied");
    let eternal = harness.call("GET", "/photos/a").presigned(604_801).send_as_it_is().await;
    refused(&eternal, 400, "AuthorizationQueryParametersError");
}

#[tokio::test]
async fn who_waits_to_be_asked_for_a_body_is_told_that_the_connection_ends() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let put = |bucket: &str| {
        harness.call("PUT", &format!("/{bucket}/a")).header("expect", "100-continue").body("hello").send()
    };
    let refusal = put("absent").await;
    refused(&refusal, 404, "NoSuchBucket");
    assert_eq!(refusal.header("connection"), Some("close"));
    let taken = put("photos").await;
    assert_eq!((taken.status, taken.header("connection")), (200, None));
    // Nobody asks for an empty body, and clients that waited for it must not use the connection again.
    let empty = harness.call("PUT", "/photos/empty").header("expect", "100-continue").send().await;
    assert_eq!((empty.status, empty.header("connection")), (200, Some("close")));
}

#[tokio::test]
async fn keys_that_were_replaced_open_nothing() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.rotate().await;
    refused(&harness.call("HEAD", "/photos").send().await, 403, "InvalidAccessKeyId");
}

#[tokio::test]
async fn forms_are_refused_unread() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    for kind in ["multipart/form-data; boundary=x", "Multipart/Form-Data; boundary=x"] {
        let form = harness.call("POST", "/photos").header("content-type", kind).body("--x--");
        refused(&form.send_as_it_is().await, 501, "NotImplemented");
    }
}

#[allow(clippy::disallowed_methods, reason = "a signature is only good near the present, and s3s asks the system")]
fn now() -> SystemTime {
    SystemTime::now()
}
