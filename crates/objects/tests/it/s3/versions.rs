//! Buckets that keep old versions.

use rstest::rstest;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Harness, assert_refused};

/// Overwritten and deleted objects can be recovered.
#[rstest]
#[case(DatabaseKind::Sqlite)]
#[case(DatabaseKind::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn overwritten_objects_are_recovered(#[case] database: DatabaseKind) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("photos").await;
    assert_eq!(harness.put("photos", "a", "before").await.header("x-amz-version-id"), None);
    assert_eq!(harness.call("GET", "/photos?versioning").send().await.xml("Status"), None);
    harness.versioning("photos", "Enabled").await;
    assert_eq!(harness.call("GET", "/photos?versioning").send().await.xml("Status").as_deref(), Some("Enabled"));
    let second = harness.put("photos", "a", "second").await.header("x-amz-version-id").unwrap().to_owned();
    let get = |version: &str| harness.call("GET", &format!("/photos/a?versionId={version}")).send();
    assert_eq!(get("null").await.text(), "before");
    assert_eq!(get("null").await.header("x-amz-version-id"), Some("null"));
    assert_eq!(get(&second).await.text(), "second");

    let deleted = harness.call("DELETE", "/photos/a").send().await;
    assert_eq!((deleted.status, deleted.header("x-amz-delete-marker")), (204, Some("true")));
    let marker = deleted.header("x-amz-version-id").unwrap().to_owned();
    let gone = harness.get("photos", "a").await;
    assert_refused(&gone, 404, "NoSuchKey");
    assert_eq!(
        (gone.header("x-amz-delete-marker"), gone.header("x-amz-version-id")),
        (Some("true"), Some(marker.as_str()))
    );
    let asked = get(&marker).await;
    assert_refused(&asked, 405, "MethodNotAllowed");
    assert_eq!(asked.header("x-amz-delete-marker"), Some("true"));

    let undone = harness.call("DELETE", &format!("/photos/a?versionId={marker}")).send().await;
    assert_eq!((undone.status, undone.header("x-amz-delete-marker")), (204, Some("true")));
    assert_eq!(harness.get("photos", "a").await.text(), "second");
    assert_eq!(harness.call("DELETE", &format!("/photos/a?versionId={second}")).send().await.status, 204);
    assert_eq!(harness.get("photos", "a").await.text(), "before");
    assert_refused(&get(&second).await, 404, "NoSuchVersion");
    assert_refused(&get("nonsense").await, 400, "InvalidArgument");
}

/// A bucket with suspended versioning overwrites the version without an id.
#[tokio::test]
async fn suspended_versioning_overwrites_null() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.versioning("photos", "Enabled").await;
    let kept = harness.put("photos", "a", "kept").await.header("x-amz-version-id").unwrap().to_owned();
    harness.versioning("photos", "Suspended").await;
    assert_eq!(harness.put("photos", "a", "one").await.header("x-amz-version-id"), Some("null"));
    harness.put("photos", "a", "two").await;
    assert_eq!(harness.get("photos", "a").await.text(), "two");
    let versions = harness.call("GET", "/photos?versions").send().await;
    assert_eq!(versions.all("VersionId"), ["null", &kept]);
}

/// The versioning status is Enabled or Suspended, without MFA delete.
#[tokio::test]
async fn versioning_configuration_is_checked() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let put = |inner: &str| {
        let body = format!("<VersioningConfiguration>{inner}</VersioningConfiguration>");
        harness.call("PUT", "/photos?versioning").body(body).send()
    };
    assert_refused(&put("<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>").await, 501, "NotImplemented");
    assert_refused(&put("<Status>Perhaps</Status>").await, 400, "MalformedXML");
    assert_refused(&put("").await, 400, "IllegalVersioningConfigurationException");
    assert_refused(&put("<Status>").await, 400, "MalformedXML");
}
