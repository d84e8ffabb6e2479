//! Regions that clients sign for: there is one, and every name is accepted for it.

use rstest::rstest;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Call, Harness, assert_refused};

fn call(harness: &Harness, region: &str, method: &str, target: &str) -> Call {
    let mut call = harness.call(method, target);
    call.signer.region = region.to_owned();
    call
}

/// Any region is accepted, in headers and in URLs.
#[rstest]
#[tokio::test]
async fn every_region_is_accepted(#[values("US", "us_east_1", "eu.west.1", "My Region+1")] region: &str) {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    assert_eq!(call(&harness, region, "PUT", "/photos").send().await.status, 200);
    let put = call(&harness, region, "PUT", "/photos/a%20b/%C3%BC").body("hello").header("x-amz-meta-a", " b c ");
    assert_eq!(put.send().await.status, 200);
    let got = call(&harness, region, "GET", "/photos/a%20b/%C3%BC?response-content-type=a%2Fb%20c").send().await;
    assert_eq!((got.text().as_str(), got.header("content-type")), ("hello", Some("a/b c")));
    let listed = call(&harness, region, "GET", "/photos?list-type=2&prefix=a%20b%2F").send().await;
    assert_eq!(listed.all("Key"), ["a b/ü"]);
    let url = || call(&harness, region, "GET", "/photos/a%20b/%C3%BC?response-content-type=a%2Fb").presigned(60);
    assert_eq!(url().send_unchanged().await.text(), "hello");
    let mut altered = url();
    altered.query = altered.query.replace("a%2Fb", "a%2Fc");
    assert_refused(&altered.send_unchanged().await, 403, "SignatureDoesNotMatch");
    let mut raw = call(&harness, region, "GET", "/photos/a(b)").sign("UNSIGNED-PAYLOAD").0;
    assert_refused(&raw.send_unchanged().await, 404, "NoSuchKey");
    raw = call(&harness, region, "GET", "/photos/other").sign("UNSIGNED-PAYLOAD").0;
    raw.path = "/photos/a%20b/%C3%BC".to_owned();
    assert_refused(&raw.send_unchanged().await, 403, "SignatureDoesNotMatch");
}

/// A wrong signature, an unknown key, and a signature for another region are refused as with any region.
#[tokio::test]
async fn wrong_signature_is_refused_in_every_region() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let head = || call(&harness, "us.east", "GET", "/photos");
    let mut wrong = head();
    wrong.signer.secret = "another".to_owned();
    assert_refused(&wrong.send().await, 403, "SignatureDoesNotMatch");
    let mut unknown = head();
    unknown.signer.access_key = "TARNAAAAAAAAAAAAAAAA".to_owned();
    assert_refused(&unknown.send().await, 403, "InvalidAccessKeyId");
    let mut late = head();
    late.signer.date = "20200101T000000Z".to_owned();
    assert_refused(&late.send().await, 403, "RequestTimeTooSkewed");
    for (from, to) in [("us.east", "us.west"), ("us.east", "global"), ("global", "us.east")] {
        let call = call(&harness, from, "GET", "/photos").sign("UNSIGNED-PAYLOAD").0;
        let authorization = &call.headers.iter().find(|(name, _)| name == "authorization").unwrap().1;
        let other = authorization.replace(from, to);
        assert_refused(&call.header("authorization", &other).send_unchanged().await, 403, "SignatureDoesNotMatch");
    }
}

/// Chunks that are signed for any region are verified.
#[tokio::test]
async fn chunks_are_verified_in_every_region() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let body: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
    let put = || call(&harness, "us.east_1", "PUT", "/photos/a").body(body.clone());
    for size in [65_536, 7_000, 200_000] {
        assert_eq!(put().send_chunked(size, |_| ()).await.status, 200);
        assert!(harness.get("photos", "a").await.body == body);
    }
    assert_eq!(call(&harness, "US", "PUT", "/photos/empty").send_chunked(10, |_| ()).await.status, 200);
    for place in [100, 70_000, 140_000] {
        let altered = put().send_chunked(65_536, |bytes| bytes[place] ^= 1).await;
        assert_refused(&altered, 403, "SignatureDoesNotMatch");
    }
    let cut = put().send_chunked(65_536, |bytes| bytes.truncate(100_000)).await;
    assert!(cut.status == 400 && harness.get("photos", "a").await.body == body, "{}", cut.text());
}

/// A trailer that is signed for any region is verified.
#[tokio::test]
async fn trailers_are_verified_in_every_region() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let trailer = "x-amz-checksum-crc32:y/Q5Jg==";
    for (from, to, status) in [("", "", 200), ("y/Q5Jg==", "AAAAAA==", 403), ("signature:", "signature:0", 403)] {
        let (mut call, seed) = call(&harness, "us.east", "PUT", "/photos/a")
            .header("content-encoding", "aws-chunked")
            .header("x-amz-decoded-content-length", "9")
            .header("x-amz-trailer", "x-amz-checksum-crc32")
            .sign("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER");
        let body = call.signer.chunks_with_trailer(&seed, b"123456789", 4, trailer);
        call.body = String::from_utf8(body).unwrap().replace(from, to).into_bytes();
        let sent = call.send_unchanged().await;
        assert_eq!(sent.status, status, "{}", sent.text());
    }
    assert_eq!(harness.get("photos", "a").await.text(), "123456789");
}
