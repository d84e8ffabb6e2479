//! Reading parts of objects.

use rstest::rstest;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Harness, Response, assert_refused};

async fn ranged(harness: &Harness, key: &str, range: &str) -> Response {
    harness.call("GET", &format!("/photos/{key}")).header("range", range).send().await
}

/// Ranges of an object are exact.
#[rstest]
#[case(DatabaseKind::Sqlite, 1_000)]
#[case(DatabaseKind::Sqlite, 100_000)]
#[case(DatabaseKind::Postgres, 100_000)]
#[tokio::test(flavor = "multi_thread")]
async fn object_ranges_are_exact(#[case] database: DatabaseKind, #[case] size: usize) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("photos").await;
    let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
    harness.put("photos", "a", body.clone()).await;
    let end = size - 1;
    for (range, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=500-", 500, size),
        ("bytes=-7", size - 7, size),
        ("bytes=-99999999", 0, size),
        ("bytes=900-99999999", 900, size),
    ] {
        let got = ranged(&harness, "a", range).await;
        assert_eq!(got.status, 206, "{range}");
        assert!(got.body == body[from..to], "{range}");
        assert_eq!(got.header("content-range"), Some(format!("bytes {from}-{}/{size}", to - 1).as_str()));
        assert_eq!(got.header("content-length"), Some((to - from).to_string().as_str()));
    }
    for range in [format!("bytes={size}-"), format!("bytes={}-{}", end + 5, end + 9), "bytes=-0".to_owned()] {
        let got = ranged(&harness, "a", &range).await;
        assert_refused(&got, 416, "InvalidRange");
        assert_eq!(got.header("content-range"), Some(format!("bytes */{size}").as_str()));
    }
    let head = harness.call("HEAD", "/photos/a").header("range", "bytes=0-9").send().await;
    assert_eq!((head.status, head.header("content-length")), (206, Some("10")));
}

/// A range that is malformed, of another unit or of several parts is ignored, whether it is signed or not.
#[tokio::test]
async fn unusable_ranges_are_ignored() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", "hello").await;
    for range in
        ["bytes=2-1", "bytes=x", "bytes=", "bytes=-", "bytes", "items=0-1", "bytes=0-1,3-4", "0-1", "", "bytes=0-1-2"]
    {
        for method in ["GET", "HEAD"] {
            let call = || harness.call(method, "/photos/a");
            for got in [
                call().header("range", range).send().await,
                call().header("range", range).presigned(60).send_unchanged().await,
                call().presigned(60).header("range", range).send_unchanged().await,
            ] {
                assert_eq!((got.status, got.header("content-length")), (200, Some("5")), "{range}: {}", got.text());
                assert_eq!(got.header("content-range"), None);
            }
        }
    }
    let mut forged = harness.call("GET", "/photos/a").header("range", "bytes=2-1");
    forged.signer.secret = "another".to_owned();
    assert_refused(&forged.send().await, 403, "SignatureDoesNotMatch");
    let altered = harness.call("GET", "/photos/a").header("range", "bytes=2-1").sign("UNSIGNED-PAYLOAD").0;
    assert_refused(&altered.header("range", "bytes=0-1,3-4").send_unchanged().await, 403, "SignatureDoesNotMatch");
}

/// An empty object has no ranges.
#[tokio::test]
async fn empty_object_has_no_ranges() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "empty", "").await;
    let got = harness.get("photos", "empty").await;
    assert_eq!((got.status, got.body.len(), got.header("content-length")), (200, 0, Some("0")));
    for range in ["bytes=0-", "bytes=0-10", "bytes=-5"] {
        assert_refused(&ranged(&harness, "empty", range).await, 416, "InvalidRange");
    }
}

/// An object that was put in one piece is its own first part.
#[tokio::test]
async fn single_object_is_its_first_part() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", "hello").await;
    let part = |number: &str| harness.call("GET", &format!("/photos/a?partNumber={number}")).send();
    let first = part("1").await;
    assert_eq!(
        (first.status, first.text().as_str(), first.header("content-range")),
        (206, "hello", Some("bytes 0-4/5"))
    );
    assert_eq!(first.header("x-amz-mp-parts-count"), None);
    assert_refused(&part("2").await, 416, "InvalidPartNumber");
    assert_refused(&part("0").await, 400, "InvalidArgument");
    assert_refused(&part("10001").await, 400, "InvalidArgument");
    let both = harness.call("GET", "/photos/a?partNumber=1").header("range", "bytes=0-1").send().await;
    assert_refused(&both, 400, "InvalidRequest");
}

/// Checksums are returned when they are requested.
#[tokio::test]
async fn checksums_are_returned_on_request() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let put =
        harness.call("PUT", "/photos/a").header("x-amz-checksum-crc32", "y/Q5Jg==").body("123456789").send().await;
    assert_eq!((put.status, put.header("x-amz-checksum-crc32")), (200, Some("y/Q5Jg==")), "{}", put.text());
    assert_eq!(harness.get("photos", "a").await.header("x-amz-checksum-crc32"), None);
    let ask = || harness.call("GET", "/photos/a").header("x-amz-checksum-mode", "ENABLED");
    let got = ask().send().await;
    assert_eq!(got.header("x-amz-checksum-crc32"), Some("y/Q5Jg=="));
    assert_eq!(got.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
    assert_eq!(
        ask().header("range", "bytes=0-3").send().await.header("x-amz-checksum-crc32"),
        None,
        "it is of the whole"
    );
}

/// An object that is replaced while it is read is the old one or the new one.
#[tokio::test]
async fn replaced_object_is_read_whole() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", vec![0; 50_000]).await;
    let write = async {
        for round in 1..60_u8 {
            harness.put("photos", "a", vec![round; 50_000]).await;
        }
    };
    let read = async {
        for _ in 0..120 {
            let got = harness.get("photos", "a").await;
            assert_eq!((got.status, got.body.len()), (200, 50_000), "{}", got.text());
            assert!(got.body.iter().all(|byte| *byte == got.body[0]), "no mixture");
        }
    };
    tokio::join!(write, read);
}
