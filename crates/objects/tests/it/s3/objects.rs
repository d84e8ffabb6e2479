//! Objects: put, described and deleted, and bodies that are not what they say.

use base64_simd::STANDARD;
use rstest::rstest;
use tarn_objects::Settings;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Call, Harness, refused};
use crate::s3::signer::escape;

#[rstest]
#[case(DatabaseKind::Sqlite)]
#[case(DatabaseKind::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_comes_back(#[case] engine: DatabaseKind) {
    let Some(harness) = Harness::new(engine).await else { return };
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
        refused(&harness.get("photos", key).await, 404, "NoSuchKey");
    }
}

#[tokio::test]
async fn keys_have_limits() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let put = |key: &str| harness.call("PUT", &format!("/photos/{key}")).body("1").send();
    refused(&put(&"k".repeat(1025)).await, 400, "KeyTooLongError");
    refused(&put("a%00b").await, 400, "InvalidArgument");
    refused(&put("%FF").await, 400, "InvalidURI");
    refused(&harness.call("PUT", "/absent/a").body("1").send().await, 404, "NoSuchBucket");
    refused(&harness.call("PUT", "/absent/a").body(vec![0; 40_000]).send().await, 404, "NoSuchBucket");
}

#[tokio::test]
async fn headers_that_are_kept_have_a_limit() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let half = "x".repeat(4000);
    let with = |call: Call| call.header("cache-control", &half).header("content-disposition", &half);
    let put = || with(harness.call("PUT", "/photos/a")).body("1");
    assert_eq!(put().send().await.status, 200);
    let begin = || with(harness.call("POST", "/photos/a?uploads"));
    for call in [put(), begin()] {
        let answer = call.header("content-language", &"x".repeat(200)).send().await;
        refused(&answer, 400, "RequestHeaderSectionTooLarge");
    }
    refused(&put().header("x-amz-meta-own", &"x".repeat(2048)).send().await, 400, "MetadataTooLarge");
    let copy = harness.call("PUT", "/photos/b").header("x-amz-copy-source", "/photos/a");
    let copy = copy.header("x-amz-website-redirect-location", &format!("/{}", "x".repeat(9000)));
    refused(&copy.send().await, 400, "RequestHeaderSectionTooLarge");
}

#[tokio::test]
async fn headers_come_back_as_they_were_given() {
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
    refused(&large, 400, "MetadataTooLarge");
    let class = harness.call("PUT", "/photos/a").header("x-amz-storage-class", "GLACIER").body("1").send().await;
    refused(&class, 400, "InvalidStorageClass");
    let encrypted = harness.call("PUT", "/photos/a").header("x-amz-server-side-encryption", "AES256").body("1");
    refused(&encrypted.send().await, 501, "NotImplemented");
    let public = harness.call("PUT", "/photos/a").header("x-amz-acl", "public-read").body("1").send().await;
    refused(&public, 400, "AccessControlListNotSupported");
    assert_eq!(harness.get("photos", "a").await.text(), "hello", "nothing of that was taken");
}

#[tokio::test]
async fn bodies_are_what_they_say() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let put = |name: &str, value: &str| harness.call("PUT", "/photos/a").header(name, value).body("hello").send();
    refused(&put("content-md5", "nonsense").await, 400, "InvalidDigest");
    refused(&put("content-md5", "").await, 400, "InvalidDigest");
    refused(&put("content-md5", &STANDARD.encode_to_string([0; 16])).await, 400, "BadDigest");
    assert_eq!(put("content-md5", "XUFAKrxLKna5cZ2REBfFkg==").await.status, 200);
    refused(&put("content-length", "6").await, 400, "IncompleteBody");
    refused(&put("content-length", "4").await, 400, "IncompleteBody");
    refused(&put("content-length", "5368709121").await, 400, "EntityTooLarge");
    refused(&put("x-amz-checksum-crc32", "AAAAAA==").await, 400, "BadDigest");
    let wrong = harness.call("PUT", "/photos/b").body("hello").header("content-length", "5").sign(&"0".repeat(64)).0;
    refused(&wrong.send_as_it_is().await, 400, "XAmzContentSHA256Mismatch");
    refused(&harness.get("photos", "b").await, 404, "NoSuchKey");
    let body = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let length = body.len().to_string();
    let large = harness.call("PUT", "/photos?versioning").body(vec![b' '; 5 << 20]).send().await;
    refused(&large, 400, "MaxMessageLengthExceeded");
    let call = harness.call("PUT", "/photos?versioning").body(body).header("content-length", &length);
    refused(&call.sign(&"0".repeat(64)).0.send_as_it_is().await, 400, "XAmzContentSHA256Mismatch");
    assert_eq!(harness.call("GET", "/photos?versioning").send().await.xml("Status"), None);
}

#[tokio::test]
async fn signed_chunks_are_checked_one_by_one() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let body: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let call = || harness.call("PUT", "/photos/a").body(body.clone());
    let put = call().send_chunked(8192, |_| ()).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let got = harness.get("photos", "a").await;
    assert!(got.body == body);
    assert_eq!(got.header("content-encoding"), None, "how it travelled is nobody's business");

    refused(&call().send_chunked(8192, |sent| sent[50_000] ^= 1).await, 403, "SignatureDoesNotMatch");
    refused(&call().send_chunked(8192, |sent| sent.truncate(60_000)).await, 400, "IncompleteBody");
    refused(&call().send_chunked(8192, |sent| sent.splice(..4, *b"wxyz").for_each(drop)).await, 400, "IncompleteBody");
    // The last chunk has no bytes, and a signature.
    let endless =
        call().send_chunked(8192, |sent| sent.truncate(sent.len() - "0;chunk-signature=".len() - 64 - 4)).await;
    refused(&endless, 400, "IncompleteBody");
    let huge = call().send_chunked(8192, |sent| sent.splice(..4, *b"2000000").for_each(drop)).await;
    refused(&huge, 400, "InvalidRequest");
    assert!(harness.get("photos", "a").await.body == body, "what was there stays");
}

#[tokio::test]
async fn a_large_chunk_without_a_signature_is_taken() {
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
    let answer = delete(["a", "absent", &"k".repeat(1025)].map(object).concat()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((answer.all("Deleted").len(), answer.all("Code")), (2, vec!["KeyTooLongError".to_owned()]));
    let quiet = delete(format!("<Quiet>true</Quiet>{}", object("b"))).await;
    assert_eq!((quiet.status, quiet.all("Deleted").len()), (200, 0));
    refused(&harness.get("photos", "a").await, 404, "NoSuchKey");
    refused(&harness.get("photos", "b").await, 404, "NoSuchKey");
    assert_eq!(harness.get("photos", "c").await.text(), "c");
    refused(&delete(object("x").repeat(1001)).await, 400, "MalformedXML");
    refused(&delete(String::new()).await, 400, "MalformedXML");
    let wrong = "<Object><Key>c</Key><VersionId>nonsense</VersionId></Object>".to_owned();
    assert_eq!(delete(wrong).await.all("Code"), ["InvalidArgument"]);
    let bomb =
        "<!DOCTYPE d [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><Delete><Object><Key>&b;</Key></Object></Delete>";
    refused(&harness.call("POST", "/photos?delete").body(bomb).send().await, 400, "MalformedXML");
}

#[tokio::test]
async fn a_quota_ends_where_it_is_said() {
    let settings = Settings { reserve_bytes: 0, quota_bytes: Some(10_000), ..Settings::default() };
    let harness = Harness::with(DatabaseKind::Sqlite, settings).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", vec![0; 9_000]).await;
    let more = harness.call("PUT", "/photos/b").body(vec![0; 2_000]).send().await;
    refused(&more, 403, "QuotaExceeded");
    let words = "there may be 10000 bytes of objects, there are 9000 and this asks for 2000";
    assert!(more.text().contains(words), "{}", more.text());
    assert_eq!(harness.call("DELETE", "/photos/a").send().await.status, 204);
    harness.put("photos", "b", vec![0; 2_000]).await;
}
