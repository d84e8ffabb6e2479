//! Conditional calls.

use rstest::rstest;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Harness, Response, assert_refused};

const EARLIER: &str = "Sat, 29 Oct 1994 19:43:31 GMT";
const LATER: &str = "Sat, 29 Oct 2095 19:43:31 GMT";

async fn read(harness: &Harness, method: &str, headers: &[(&str, &str)]) -> Response {
    let call = harness.call(method, "/photos/a");
    headers.iter().fold(call, |call, (name, value)| call.header(name, value)).send().await
}

/// The conditions of reads have the precedence of S3.
#[tokio::test]
async fn read_conditions_follow_s3() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let etag = harness.put("photos", "a", "hello").await.header("etag").unwrap().to_owned();
    let other = "\"00000000000000000000000000000000\"";
    let list = format!("{other}, {etag}");
    let bare = etag.trim_matches('"').to_owned();
    let weak = format!("W/{etag}");
    let cases: &[(&[(&str, &str)], u16)] = &[
        (&[("if-match", &etag)], 200),
        (&[("if-match", &bare)], 200),
        (&[("if-match", "*")], 200),
        (&[("if-match", &list)], 200),
        (&[("if-match", other)], 412),
        (&[("if-none-match", &etag)], 304),
        (&[("if-none-match", &list)], 304),
        (&[("if-none-match", &weak)], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", other)], 200),
        (&[("if-modified-since", EARLIER)], 200),
        (&[("if-modified-since", LATER)], 304),
        (&[("if-unmodified-since", EARLIER)], 412),
        (&[("if-unmodified-since", LATER)], 200),
        // The ETag counts, not the time.
        (&[("if-match", &etag), ("if-unmodified-since", EARLIER)], 200),
        (&[("if-none-match", other), ("if-modified-since", LATER)], 200),
        (&[("if-none-match", &etag), ("if-modified-since", EARLIER)], 304),
    ];
    for (headers, status) in cases {
        for method in ["GET", "HEAD"] {
            let response = read(&harness, method, headers).await;
            assert_eq!(response.status, *status, "{method} {headers:?}");
            if *status == 304 {
                assert_eq!((response.header("etag"), response.body.len()), (Some(etag.as_str()), 0));
            }
        }
    }
    assert_refused(&read(&harness, "GET", &[("if-match", other)]).await, 412, "PreconditionFailed");
    let same = read(&harness, "HEAD", &[]).await;
    let modified = same.header("last-modified").unwrap();
    assert_eq!(read(&harness, "GET", &[("if-modified-since", modified)]).await.status, 304);
    assert_eq!(read(&harness, "GET", &[("if-unmodified-since", modified)]).await.status, 200);
}

/// The conditions of puts are checked.
#[rstest]
#[case(DatabaseKind::Sqlite)]
#[case(DatabaseKind::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn put_conditions_are_checked(#[case] database: DatabaseKind) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("photos").await;
    let put = |name: &'static str, value: String, body: &'static str| {
        harness.call("PUT", "/photos/a").header(name, &value).body(body).send()
    };
    assert_refused(&put("if-match", "*".to_owned(), "0").await, 404, "NoSuchKey");
    let first = put("if-none-match", "*".to_owned(), "1").await;
    assert_eq!(first.status, 200);
    assert_refused(&put("if-none-match", "*".to_owned(), "2").await, 412, "PreconditionFailed");
    let etag = first.header("etag").unwrap().to_owned();
    assert_eq!(put("if-match", etag.clone(), "3").await.status, 200);
    assert_refused(&put("if-match", etag.clone(), "4").await, 412, "PreconditionFailed");
    assert_refused(&put("if-none-match", etag, "5").await, 501, "NotImplemented");
    assert_eq!(harness.get("photos", "a").await.text(), "3");
}
