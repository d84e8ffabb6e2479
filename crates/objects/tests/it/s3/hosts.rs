//! Buckets with hosts of their own.

use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Harness, refused};

#[tokio::test]
async fn a_host_below_a_domain_is_a_bucket() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    for host in ["photos.s3.example.org", "photos.s3.example.org:443", "photos.localhost:7071", "Photos.LOCALHOST"] {
        let put = harness.call("PUT", "/dir/a").header("host", host).body("hello").send().await;
        assert_eq!(put.status, 200, "{host}: {}", put.text());
        assert_eq!(harness.call("GET", "/dir/a").header("host", host).send().await.text(), "hello");
        assert_eq!(harness.call("DELETE", "/dir/a").header("host", host).send().await.status, 204);
    }
    refused(&harness.call("GET", "/a").header("host", "absent.s3.example.org").send().await, 404, "NoSuchBucket");
}

#[tokio::test]
async fn any_other_host_leaves_the_bucket_to_the_path() {
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
