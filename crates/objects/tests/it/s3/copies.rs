//! Copies within the storage.

use rstest::rstest;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Call, Harness, Response, assert_refused};

fn copy(harness: &Harness, to: &str, from: &str) -> Call {
    harness.call("PUT", to).header("x-amz-copy-source", from)
}

async fn done(call: Call) -> Response {
    let response = call.send().await;
    assert_eq!(response.status, 200, "{}", response.text());
    response
}

/// A copy has the content and the metadata of the original.
#[rstest]
#[case(DatabaseKind::Sqlite)]
#[case(DatabaseKind::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn copy_keeps_content_and_metadata(#[case] database: DatabaseKind) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("photos").await;
    harness.bucket("archive").await;
    for size in [0, 5, 200_000] {
        let body = vec![b'x'; size];
        let put =
            harness.call("PUT", "/photos/a%20b").header("content-type", "text/plain").header("x-amz-meta-who", "me");
        let put = put.header("x-amz-tagging", "colour=red").body(body.clone()).send().await;
        assert_eq!(put.status, 200, "{}", put.text());
        let response = done(copy(&harness, "/archive/copy", "/photos/a%20b")).await;
        assert_eq!(response.xml("ETag").map(|tag| tag.replace("&quot;", "\"")).as_deref(), put.header("etag"));
        assert_eq!(harness.call("DELETE", "/photos/a%20b").send().await.status, 204);
        let got = harness.get("archive", "copy").await;
        assert!(got.body == body, "{size} bytes come back");
        assert_eq!(got.header("content-type"), Some("text/plain"));
        assert_eq!((got.header("x-amz-meta-who"), got.header("x-amz-tagging-count")), (Some("me"), Some("1")));
    }
}

/// A copy can have its own headers and tags.
#[tokio::test]
async fn copy_replaces_headers_and_tags() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let put =
        harness.call("PUT", "/photos/a").header("x-amz-meta-who", "me").header("x-amz-tagging", "a=1").body("hello");
    assert_eq!(put.send().await.status, 200);
    assert_refused(&copy(&harness, "/photos/a", "/photos/a").send().await, 400, "InvalidRequest");
    let replace = copy(&harness, "/photos/a", "/photos/a").header("x-amz-metadata-directive", "REPLACE");
    done(replace.header("x-amz-meta-now", "you").header("content-type", "text/css")).await;
    let got = harness.get("photos", "a").await;
    assert_eq!((got.header("x-amz-meta-who"), got.header("x-amz-meta-now")), (None, Some("you")));
    assert_eq!((got.header("content-type"), got.header("x-amz-tagging-count")), (Some("text/css"), Some("1")));
    done(copy(&harness, "/photos/b", "/photos/a").header("x-amz-tagging-directive", "REPLACE")).await;
    assert_eq!(harness.get("photos", "b").await.header("x-amz-tagging-count"), None);
    let odd = copy(&harness, "/photos/b", "/photos/a").header("x-amz-metadata-directive", "MAYBE");
    assert_refused(&odd.send().await, 400, "InvalidArgument");
}

/// A copy can get another checksum.
#[tokio::test]
async fn copy_gets_requested_checksum() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", "123456789").await;
    let response = done(copy(&harness, "/photos/b", "/photos/a").header("x-amz-checksum-algorithm", "CRC32C")).await;
    assert_eq!(response.xml("ChecksumCRC32C").as_deref(), Some("4waSgw=="));
    let head = harness.call("HEAD", "/photos/b").header("x-amz-checksum-mode", "ENABLED").send().await;
    assert_eq!(head.header("x-amz-checksum-crc32c"), Some("4waSgw=="));
    assert_eq!(head.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
}

/// Copies can have conditions on the source and on the destination.
#[tokio::test]
async fn copy_conditions_are_checked() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let etag = harness.put("photos", "a", "hello").await.header("etag").unwrap().to_owned();
    let with = |name: &str, value: &str| copy(&harness, "/photos/b", "/photos/a").header(name, value).send();
    assert_refused(&with("x-amz-copy-source-if-none-match", &etag).await, 412, "PreconditionFailed");
    assert_refused(&with("x-amz-copy-source-if-match", "\"other\"").await, 412, "PreconditionFailed");
    let later = "Sat, 29 Oct 2095 19:43:31 GMT";
    assert_refused(&with("x-amz-copy-source-if-modified-since", later).await, 412, "PreconditionFailed");
    assert_eq!(with("if-none-match", "*").await.status, 200);
    assert_refused(&with("if-none-match", "*").await, 412, "PreconditionFailed");
    assert_eq!(with("x-amz-copy-source-if-match", &etag).await.status, 200);
}

/// Missing sources are refused, and old versions can be copied.
#[tokio::test]
async fn missing_copy_sources_are_refused() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    assert_refused(&copy(&harness, "/photos/b", "/photos/absent").send().await, 404, "NoSuchKey");
    assert_refused(&copy(&harness, "/photos/b", "/absent/a").send().await, 404, "NoSuchBucket");
    assert_refused(&copy(&harness, "/absent/b", "/photos/a").send().await, 404, "NoSuchKey");
    assert_refused(&copy(&harness, "/photos/b", "/photos/a%00").send().await, 400, "InvalidArgument");
    harness.versioning("photos", "Enabled").await;
    let old = harness.put("photos", "a", "old").await.header("x-amz-version-id").unwrap().to_owned();
    harness.put("photos", "a", "new").await;
    let restored = done(copy(&harness, "/photos/a", &format!("/photos/a?versionId={old}"))).await;
    assert_eq!(restored.header("x-amz-copy-source-version-id"), Some(old.as_str()));
    assert_eq!(harness.get("photos", "a").await.text(), "old");
}
