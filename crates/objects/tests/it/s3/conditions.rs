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
    for (name, value) in [("If-Match", other), ("If-Unmodified-Since", EARLIER)] {
        let header = name.to_ascii_lowercase();
        let refused = read(&harness, "GET", &[(header.as_str(), value)]).await;
        assert_refused(&refused, 412, "PreconditionFailed");
        assert_eq!(refused.xml("Condition").as_deref(), Some(name));
    }
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
    let taken = put("if-none-match", "*".to_owned(), "2").await;
    assert_refused(&taken, 412, "PreconditionFailed");
    assert_eq!(taken.xml("Condition").as_deref(), Some("If-None-Match"), "clients tell by it that the object exists");
    assert_eq!(taken.header("tarn-unmet-condition"), None);
    let etag = first.header("etag").unwrap().to_owned();
    assert_eq!(put("if-match", etag.clone(), "3").await.status, 200);
    let changed = put("if-match", etag.clone(), "4").await;
    assert_refused(&changed, 412, "PreconditionFailed");
    assert_eq!(changed.xml("Condition").as_deref(), Some("If-Match"));
    assert_refused(&put("if-none-match", etag, "5").await, 501, "NotImplemented");
    assert_eq!(harness.get("photos", "a").await.text(), "3");
}

/// A deletion with a condition deletes only what meets it. A missing object meets every condition.
#[rstest]
#[case(DatabaseKind::Sqlite)]
#[case(DatabaseKind::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn delete_conditions_are_checked(#[case] database: DatabaseKind) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("photos").await;
    let delete = |target: &str, name: &str, value: &str| {
        harness.call("DELETE", &format!("/photos/{target}")).header(name, value).send()
    };
    let (other, etag) = ("\"00000000000000000000000000000000\"", "\"5d41402abc4b2a76b9719d911017c592\"");
    for (name, right, wrong) in [
        ("if-match", etag, other),
        ("if-match", "*", other),
        ("x-amz-if-match-size", "5", "6"),
        ("x-amz-if-match-last-modified-time", "", EARLIER),
    ] {
        harness.put("photos", "a", "hello").await;
        let head = harness.call("HEAD", "/photos/a").send().await;
        let right = if right.is_empty() { head.header("last-modified").unwrap() } else { right };
        let refused = delete("a", name, wrong).await;
        assert_refused(&refused, 412, "PreconditionFailed");
        assert_eq!(refused.xml("Condition").unwrap().to_ascii_lowercase(), name);
        assert_eq!(harness.get("photos", "a").await.text(), "hello");
        assert_eq!(delete("a", name, right).await.status, 204);
        assert_refused(&harness.get("photos", "a").await, 404, "NoSuchKey");
        assert_eq!(delete("a", name, wrong).await.status, 204, "nothing is there");
    }
    harness.versioning("photos", "Enabled").await;
    let version = harness.put("photos", "b", "hello").await.header("x-amz-version-id").unwrap().to_owned();
    harness.put("photos", "b", "other").await;
    let old = format!("b?versionId={version}");
    assert_refused(&delete("b", "if-match", etag).await, 412, "PreconditionFailed");
    assert_refused(&delete(&old, "if-match", other).await, 412, "PreconditionFailed");
    assert_eq!(delete(&old, "if-match", etag).await.status, 204);
    assert_eq!(delete("b", "if-match", "*").await.header("x-amz-delete-marker"), Some("true"));
    assert_refused(&delete("b", "if-match", etag).await, 412, "PreconditionFailed");
}

/// Each deletion of a list has its own condition.
#[tokio::test]
async fn delete_list_conditions_are_checked() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    for key in ["a", "b", "c", "d"] {
        harness.put("photos", key, "hello").await;
    }
    let etag = "5d41402abc4b2a76b9719d911017c592";
    let body = format!(
        "<Delete><Object><Key>a</Key><ETag>{etag}</ETag></Object><Object><Key>b</Key><ETag>bad</ETag></Object>\
         <Object><Key>c</Key><Size>6</Size></Object><Object><Key>d</Key><Size>5</Size></Object></Delete>"
    );
    let deleted = harness.call("POST", "/photos?delete").body(body).send().await;
    assert_eq!((deleted.status, deleted.all("Code")), (200, vec!["PreconditionFailed".to_owned(); 2]));
    assert_eq!(harness.call("GET", "/photos").send().await.all("Key"), ["b", "c"]);
}
