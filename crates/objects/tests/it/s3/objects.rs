//! Objects: put, described and deleted, and bodies that do not match their headers.

use base64_simd::STANDARD;
use rstest::rstest;
use tarn_objects::Settings;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Call, Harness, assert_refused};
use crate::s3::signer::escape;

/// An object is read as it was put.
#[rstest]
#[case(DatabaseKind::Sqlite)]
#[case(DatabaseKind::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn put_objects_are_read_back(#[case] database: DatabaseKind) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("photos").await;
    let odd =
        ["a", "dir/b", "../../etc/passwd", "a//b/", "/x", " ", "ümläut ☃", "a+b&c=d?e#f%g", "\u{1}", &"k".repeat(1024)];
    for (number, key) in odd.iter().enumerate() {
        let body = vec![b'0' + number as u8; 3 + number * 7000];
        let put = harness.put("photos", key, body.clone()).await;
        let got = harness.get("photos", key).await;
        assert_eq!((got.status, got.body.len()), (200, body.len()), "{key:?}");
        assert!(got.body == body, "{key:?}");
        assert_eq!(got.header("etag"), put.header("etag"));
        assert_eq!(got.header("content-length"), Some(body.len().to_string().as_str()));
        assert_eq!(got.header("content-type"), Some("binary/octet-stream"));
        assert_eq!(harness.call("DELETE", &format!("/photos/{}", escape(key))).send().await.status, 204);
        assert_refused(&harness.get("photos", key).await, 404, "NoSuchKey");
    }
}

/// Keys have limits.
#[tokio::test]
async fn object_keys_are_checked() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let put = |key: &str| harness.call("PUT", &format!("/photos/{key}")).body("1").send();
    assert_refused(&put(&"k".repeat(1025)).await, 400, "KeyTooLongError");
    assert_refused(&put("a%00b").await, 400, "InvalidArgument");
    assert_refused(&put("%FF").await, 400, "InvalidURI");
    assert_refused(&harness.call("PUT", "/absent/a").body("1").send().await, 404, "NoSuchBucket");
    assert_refused(&harness.call("PUT", "/absent/a").body(vec![0; 40_000]).send().await, 404, "NoSuchBucket");
}

/// Stored headers have a limit.
#[tokio::test]
async fn stored_headers_are_limited() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let half = "x".repeat(4000);
    let with = |call: Call| call.header("cache-control", &half).header("content-disposition", &half);
    let put = || with(harness.call("PUT", "/photos/a")).body("1");
    assert_eq!(put().send().await.status, 200);
    let begin = || with(harness.call("POST", "/photos/a?uploads"));
    for call in [put(), begin()] {
        let response = call.header("content-language", &"x".repeat(200)).send().await;
        assert_refused(&response, 400, "RequestHeaderSectionTooLarge");
    }
    assert_refused(&put().header("x-amz-meta-own", &"x".repeat(2048)).send().await, 400, "MetadataTooLarge");
    let copy = harness.call("PUT", "/photos/b").header("x-amz-copy-source", "/photos/a");
    let copy = copy.header("x-amz-website-redirect-location", &format!("/{}", "x".repeat(9000)));
    assert_refused(&copy.send().await, 400, "RequestHeaderSectionTooLarge");
}

/// Stored headers are returned as they were sent.
#[tokio::test]
async fn stored_headers_are_returned() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let given = [
        ("cache-control", "no-cache"),
        ("content-disposition", "attachment; filename=\"a.txt\""),
        ("content-encoding", "gzip"),
        ("content-language", "de"),
        ("content-type", "text/plain; charset=utf-8"),
        ("expires", "Thu, 01 Dec 2044 16:00:00 GMT"),
        ("x-amz-website-redirect-location", "/elsewhere"),
        ("x-amz-meta-one", "1"),
        ("x-amz-meta-two", "2"),
    ];
    let call = given.iter().fold(harness.call("PUT", "/photos/a"), |call, (name, value)| call.header(name, value));
    assert_eq!(call.body("hello").send().await.status, 200);
    for method in ["GET", "HEAD"] {
        let got = harness.call(method, "/photos/a").send().await;
        for (name, value) in given {
            assert_eq!(got.header(name), Some(value), "{method} {name}");
        }
        let asked = "/photos/a?response-cache-control=private&response-content-type=image%2Fpng";
        let got = harness.call(method, asked).send().await;
        assert_eq!((got.header("content-type"), got.header("cache-control")), (Some("image/png"), Some("private")));
    }
    let large = harness.call("PUT", "/photos/a").header("x-amz-meta-a", &"v".repeat(2048)).body("1").send().await;
    assert_refused(&large, 400, "MetadataTooLarge");
    let class = harness.call("PUT", "/photos/a").header("x-amz-storage-class", "GLACIER").body("1").send().await;
    assert_refused(&class, 400, "InvalidStorageClass");
    let encrypted = harness.call("PUT", "/photos/a").header("x-amz-server-side-encryption", "AES256").body("1");
    assert_refused(&encrypted.send().await, 501, "NotImplemented");
    let public = harness.call("PUT", "/photos/a").header("x-amz-acl", "public-read").body("1").send().await;
    assert_refused(&public, 400, "AccessControlListNotSupported");
    assert_eq!(harness.get("photos", "a").await.text(), "hello", "refused calls change nothing");
}

/// A body must match the headers that describe it.
#[tokio::test]
async fn bodies_match_their_headers() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let put = |name: &str, value: &str| harness.call("PUT", "/photos/a").header(name, value).body("hello").send();
    assert_refused(&put("content-md5", "nonsense").await, 400, "InvalidDigest");
    assert_refused(&put("content-md5", "").await, 400, "InvalidDigest");
    assert_refused(&put("content-md5", &STANDARD.encode_to_string([0; 16])).await, 400, "BadDigest");
    assert_eq!(put("content-md5", "XUFAKrxLKna5cZ2REBfFkg==").await.status, 200);
    assert_refused(&put("content-length", "6").await, 400, "IncompleteBody");
    assert_refused(&put("content-length", "4").await, 400, "IncompleteBody");
    assert_refused(&put("content-length", "5368709121").await, 400, "EntityTooLarge");
    assert_refused(&put("x-amz-checksum-crc32", "AAAAAA==").await, 400, "BadDigest");
    let wrong = harness.call("PUT", "/photos/b").body("hello").header("content-length", "5").sign(&"0".repeat(64)).0;
    assert_refused(&wrong.send_unchanged().await, 400, "XAmzContentSHA256Mismatch");
    assert_refused(&harness.get("photos", "b").await, 404, "NoSuchKey");
    let body = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let length = body.len().to_string();
    let large = harness.call("PUT", "/photos?versioning").body(vec![b' '; 5 << 20]).send().await;
    assert_refused(&large, 400, "MaxMessageLengthExceeded");
    let call = harness.call("PUT", "/photos?versioning").body(body).header("content-length", &length);
    assert_refused(&call.sign(&"0".repeat(64)).0.send_unchanged().await, 400, "XAmzContentSHA256Mismatch");
    assert_eq!(harness.call("GET", "/photos?versioning").send().await.xml("Status"), None);
}

/// Signed chunks are verified one by one.
#[tokio::test]
async fn signed_chunks_are_verified() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let body: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let call = || harness.call("PUT", "/photos/a").body(body.clone());
    let put = call().send_chunked(8192, |_| ()).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let got = harness.get("photos", "a").await;
    assert!(got.body == body);
    assert_eq!(got.header("content-encoding"), None, "the transfer encoding is not stored");

    assert_refused(&call().send_chunked(8192, |sent| sent[50_000] ^= 1).await, 403, "SignatureDoesNotMatch");
    assert_refused(&call().send_chunked(8192, |sent| sent.truncate(60_000)).await, 400, "IncompleteBody");
    assert_refused(
        &call().send_chunked(8192, |sent| sent.splice(..4, *b"wxyz").for_each(drop)).await,
        400,
        "IncompleteBody",
    );
    // The last chunk has no bytes, but a signature.
    let endless =
        call().send_chunked(8192, |sent| sent.truncate(sent.len() - "0;chunk-signature=".len() - 64 - 4)).await;
    assert_refused(&endless, 400, "IncompleteBody");
    let huge = call().send_chunked(8192, |sent| sent.splice(..4, *b"2000000").for_each(drop)).await;
    assert_refused(&huge, 400, "InvalidRequest");
    assert!(harness.get("photos", "a").await.body == body, "the previous object stays");
}

/// A large unsigned chunk is accepted.
#[tokio::test]
async fn large_unsigned_chunk_is_accepted() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let body = vec![7; 5 << 20];
    let mut sent = format!("{:x}\r\n", body.len()).into_bytes();
    sent.extend_from_slice(&body);
    sent.extend_from_slice(b"\r\n0\r\n");
    let crc = STANDARD.encode_to_string(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &body).to_be_bytes());
    sent.extend_from_slice(format!("x-amz-checksum-crc64nvme:{crc}\r\n\r\n").as_bytes());
    let call = harness.call("PUT", "/photos/a");
    let put = call.send_unsigned_chunks(body.len(), "x-amz-checksum-crc64nvme", sent).await;
    assert_eq!((put.status, put.header("x-amz-checksum-crc64nvme")), (200, Some(crc.as_str())), "{}", put.text());
    assert!(harness.get("photos", "a").await.body == body);
}

/// Many keys are deleted in one call.
#[tokio::test]
async fn many_keys_are_deleted_at_once() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    for key in ["a", "b", "c"] {
        harness.put("photos", key, key).await;
    }
    let delete =
        |inner: String| harness.call("POST", "/photos?delete").body(format!("<Delete>{inner}</Delete>")).send();
    let object = |key: &str| format!("<Object><Key>{key}</Key></Object>");
    let response = delete(["a", "absent", &"k".repeat(1025)].map(object).concat()).await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!((response.all("Deleted").len(), response.all("Code")), (2, vec!["KeyTooLongError".to_owned()]));
    let quiet = delete(format!("<Quiet>true</Quiet>{}", object("b"))).await;
    assert_eq!((quiet.status, quiet.all("Deleted").len()), (200, 0));
    assert_refused(&harness.get("photos", "a").await, 404, "NoSuchKey");
    assert_refused(&harness.get("photos", "b").await, 404, "NoSuchKey");
    assert_eq!(harness.get("photos", "c").await.text(), "c");
    assert_refused(&delete(object("x").repeat(1001)).await, 400, "MalformedXML");
    assert_refused(&delete(String::new()).await, 400, "MalformedXML");
    let wrong = "<Object><Key>c</Key><VersionId>nonsense</VersionId></Object>".to_owned();
    assert_eq!(delete(wrong).await.all("Code"), ["InvalidArgument"]);
    let bomb =
        "<!DOCTYPE d [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><Delete><Object><Key>&b;</Key></Object></Delete>";
    assert_refused(&harness.call("POST", "/photos?delete").body(bomb).send().await, 400, "MalformedXML");
}

/// An object that exceeds the quota is refused.
#[tokio::test]
async fn quota_refuses_larger_object() {
    let settings = Settings { reserve_bytes: 0, quota_bytes: Some(10_000), ..Settings::default() };
    let harness = Harness::with(DatabaseKind::Sqlite, settings).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", vec![0; 9_000]).await;
    let more = harness.call("PUT", "/photos/b").body(vec![0; 2_000]).send().await;
    assert_refused(&more, 403, "QuotaExceeded");
    let reason = "the quota is 10000 bytes of objects, 9000 are in use and this asks for 2000";
    assert!(more.text().contains(reason), "{}", more.text());
    assert_eq!(harness.call("DELETE", "/photos/a").send().await.status, 204);
    harness.put("photos", "b", vec![0; 2_000]).await;
}
