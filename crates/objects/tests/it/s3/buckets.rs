//! Buckets: created, listed, described and removed.

use rstest::rstest;
use tarn_model::buckets::{Bucket, Versioning};
use tarn_model::ids::BucketId;
use tarn_model::users::User;
use tarn_store::testing::DatabaseKind;
use tarn_store::{Tx, buckets};

use crate::s3::harness::{Harness, assert_refused};

/// A bucket is created, described and removed.
#[rstest]
#[case(DatabaseKind::Sqlite)]
#[case(DatabaseKind::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn bucket_is_created_and_removed(#[case] database: DatabaseKind) {
    let Some(harness) = Harness::new(database).await else { return };
    let made = harness.call("PUT", "/photos").send().await;
    assert_eq!((made.status, made.header("location")), (200, Some("/photos")));
    assert_refused(&harness.call("PUT", "/photos").send().await, 409, "BucketAlreadyOwnedByYou");

    let head = harness.call("HEAD", "/photos").send().await;
    assert_eq!((head.status, head.header("x-amz-bucket-region")), (200, Some("global")));
    let location = harness.call("GET", "/photos?location").send().await;
    assert!(location.text().contains(">global</LocationConstraint>"), "{}", location.text());
    assert_eq!(harness.call("GET", "/").send().await.all("Name"), ["photos"]);

    harness.put("photos", "a", "1").await;
    assert_refused(&harness.call("DELETE", "/photos").send().await, 409, "BucketNotEmpty");
    assert_eq!(harness.call("DELETE", "/photos/a").send().await.status, 204);
    assert_eq!(harness.call("DELETE", "/photos").send().await.status, 204);
    assert_refused(&harness.call("DELETE", "/photos").send().await, 404, "NoSuchBucket");
    assert_eq!(harness.call("HEAD", "/photos").send().await.status, 404);
    assert_refused(&harness.call("GET", "/photos?location").send().await, 404, "NoSuchBucket");
}

/// Any region and location is accepted.
#[tokio::test]
async fn any_region_is_accepted() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    let body = "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                <LocationConstraint>eu-west-3</LocationConstraint></CreateBucketConfiguration>";
    let mut call = harness.call("PUT", "/elsewhere").body(body);
    call.signer.region = "mars-1".to_owned();
    assert_eq!(call.send().await.status, 200);
}

/// Bucket names follow the rules.
#[tokio::test]
async fn bucket_names_are_checked() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    for name in ["ab", "Photos", "photos_1", "192.168.5.4", "a..b", "-ab", "foo.-bar", "foo-.bar", &"a".repeat(64)] {
        let response = harness.call("PUT", &format!("/{name}")).send().await;
        assert_refused(&response, 400, "InvalidBucketName");
        assert!(response.xml("Message").unwrap().contains("3 to 63 characters"), "{}", response.text());
    }
}

/// A bucket whose name an older version accepted stays usable.
#[tokio::test]
async fn older_bucket_name_stays_usable() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    let insert = |tx: &mut Tx<'_>, user: &User| {
        let (id, org, created) = (BucketId::fresh(tx.ids()), user.org.clone().unwrap(), tx.now());
        let (creator, name, versioning) = (Some(user.id.clone()), "foo.-bar".to_owned(), Versioning::Off);
        Ok(buckets::insert(tx, &Bucket { id, org, creator, name, versioning, created })?)
    };
    harness.change(insert).await;
    harness.put("foo.-bar", "a", "hello").await;
    assert_eq!(harness.get("foo.-bar", "a").await.text(), "hello");
    assert_eq!(harness.call("DELETE", "/foo.-bar/a").send().await.status, 204);
    assert_eq!(harness.call("DELETE", "/foo.-bar").send().await.status, 204);
    assert_refused(&harness.call("PUT", "/foo.-bar").send().await, 400, "InvalidBucketName");
}

/// Lists of buckets have pages.
#[tokio::test]
async fn bucket_lists_have_pages() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    for name in ["alpha", "beta-1", "beta-2", "beta-3"] {
        harness.bucket(name).await;
    }
    let first = harness.call("GET", "/?max-buckets=2&prefix=beta").send().await;
    assert_eq!(first.all("Name"), ["beta-1", "beta-2"]);
    let token = first.xml("ContinuationToken").unwrap();
    let next = harness.call("GET", &format!("/?continuation-token={token}&max-buckets=2&prefix=beta")).send().await;
    assert_eq!((next.all("Name"), next.xml("ContinuationToken")), (vec!["beta-3".to_owned()], None));
    assert_refused(&harness.call("GET", "/?max-buckets=0").send().await, 400, "InvalidArgument");
}

/// Options without an effect are refused.
#[tokio::test]
async fn unsupported_options_are_refused() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    let public = harness.call("PUT", "/public").header("x-amz-acl", "public-read").send().await;
    assert_refused(&public, 400, "AccessControlListNotSupported");
    let locked = harness.call("PUT", "/locked").header("x-amz-bucket-object-lock-enabled", "true").send().await;
    assert_refused(&locked, 501, "NotImplemented");
    harness.bucket("plain").await;
    assert_refused(&harness.call("GET", "/plain?website").send().await, 501, "NotImplemented");
}
