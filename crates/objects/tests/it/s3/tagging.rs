//! Tags of objects.

use rstest::rstest;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Harness, Response, assert_refused};

fn set(tags: &[(&str, &str)]) -> String {
    let tags = tags.iter().map(|(name, value)| format!("<Tag><Key>{name}</Key><Value>{value}</Value></Tag>"));
    format!("<Tagging><TagSet>{}</TagSet></Tagging>", tags.collect::<String>())
}

async fn tag(harness: &Harness, target: &str, body: String) -> Response {
    harness.call("PUT", target).body(body).send().await
}

/// Tags are put, read and removed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn tags_are_put_read_and_removed(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("bucket").await;
    harness.call("PUT", "/bucket/key").body("x").header("x-amz-tagging", "a=1&b=%C3%BC").send().await;
    let tags = || harness.call("GET", "/bucket/key?tagging").send();
    let seen = tags().await;
    assert_eq!(
        (seen.all("Key"), seen.all("Value")),
        (vec!["a".to_owned(), "b".to_owned()], vec!["1".into(), "ü".into()])
    );
    assert_eq!(tag(&harness, "/bucket/key?tagging", set(&[("c", "3")])).await.status, 200);
    assert_eq!(tags().await.all("Key"), ["c"]);
    assert_eq!(harness.get("bucket", "key").await.header("x-amz-tagging-count"), Some("1"));
    let head = || harness.call("HEAD", "/bucket/key").send();
    assert_eq!(head().await.header("x-amz-tagging-count"), Some("1"));
    assert_eq!(harness.call("DELETE", "/bucket/key?tagging").send().await.status, 204);
    assert!(tags().await.all("Key").is_empty());
    assert_eq!(head().await.header("x-amz-tagging-count"), None);
    assert_refused(&harness.call("GET", "/bucket/missing?tagging").send().await, 404, "NoSuchKey");
    assert_refused(&tag(&harness, "/bucket/missing?tagging", set(&[])).await, 404, "NoSuchKey");
}

/// Tags belong to a version.
#[tokio::test(flavor = "multi_thread")]
async fn tags_belong_to_a_version() {
    let Some(harness) = Harness::new(DatabaseKind::Sqlite).await else { return };
    harness.bucket("bucket").await;
    harness.versioning("bucket", "Enabled").await;
    let old = harness.put("bucket", "key", "1").await.header("x-amz-version-id").unwrap().to_owned();
    harness.put("bucket", "key", "2").await;
    let target = format!("/bucket/key?tagging&versionId={old}");
    let done = tag(&harness, &target, set(&[("a", "1")])).await;
    assert_eq!((done.status, done.header("x-amz-version-id")), (200, Some(old.as_str())));
    assert_eq!(harness.call("GET", &target).send().await.all("Key"), ["a"]);
    assert!(harness.call("GET", "/bucket/key?tagging").send().await.all("Key").is_empty());
    assert_refused(&harness.call("GET", "/bucket/key?tagging&versionId=nonsense").send().await, 400, "InvalidArgument");
    let marker = harness.call("DELETE", "/bucket/key").send().await.header("x-amz-version-id").unwrap().to_owned();
    assert_refused(
        &harness.call("GET", &format!("/bucket/key?tagging&versionId={marker}")).send().await,
        405,
        "MethodNotAllowed",
    );
}

/// Tags have limits.
#[tokio::test(flavor = "multi_thread")]
async fn tags_have_limits() {
    let Some(harness) = Harness::new(DatabaseKind::Sqlite).await else { return };
    harness.bucket("bucket").await;
    harness.put("bucket", "key", "x").await;
    let names: Vec<String> = (0..11).map(|number| format!("k{number}")).collect();
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
    let (long_name, long_value) = ("n".repeat(129), "v".repeat(257));
    for tags in [
        &pairs[..],
        &[(long_name.as_str(), "v")],
        &[("n", long_value.as_str())],
        &[("a", "1"), ("a", "2")],
        &[("a", "!")],
        &[("b?", "1")],
        &[("c", "*")],
    ] {
        assert_refused(&tag(&harness, "/bucket/key?tagging", set(tags)).await, 400, "InvalidTag");
    }
    assert_eq!(tag(&harness, "/bucket/key?tagging", set(&pairs[..10])).await.status, 200);
    assert_refused(&tag(&harness, "/bucket/key?tagging", "<Tagging></Tagging>".to_owned()).await, 400, "MalformedXML");
    let put = harness.call("PUT", "/bucket/key").body("x").header("x-amz-tagging", "a=%zz");
    assert_refused(&put.send().await, 400, "InvalidArgument");
}
