//! Buckets with their own host names.

use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Harness, assert_refused};

/// A host below a domain names a bucket.
#[tokio::test]
async fn host_below_domain_is_a_bucket() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    for host in ["photos.s3.example.org", "photos.s3.example.org:443", "photos.localhost:7071", "Photos.LOCALHOST"] {
        let put = harness.call("PUT", "/dir/a").header("host", host).body("hello").send().await;
        assert_eq!(put.status, 200, "{host}: {}", put.text());
        assert_eq!(harness.call("GET", "/dir/a").header("host", host).send().await.text(), "hello");
        assert_eq!(harness.call("DELETE", "/dir/a").header("host", host).send().await.status, 204);
    }
    assert_refused(
        &harness.call("GET", "/a").header("host", "absent.s3.example.org").send().await,
        404,
        "NoSuchBucket",
    );
}

/// With any other host, the path names the bucket.
#[tokio::test]
async fn other_hosts_use_the_path() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", "hello").await;
    for host in
        ["127.0.0.1:7071", "[::1]:7071", "[::1]", "localhost", "s3.example.org", "gateway", "a.b.c.elsewhere.net"]
    {
        let got = harness.call("GET", "/photos/a").header("host", host).send().await;
        assert_eq!(got.text(), "hello", "{host}");
    }
}
