//! Requests through HTTP.

use rstest::rstest;
use serde_json::json;

use crate::support::harness::{DatabaseKind, World};

/// Requests are listed and filtered.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_listed_and_filtered(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let (ada, ben) =
        (world.user("ada@example.org", Some("acme")).await, world.user("ben@example.org", Some("acme")).await);
    let cluster = world.cluster(&ada, "trainer").await;
    world.volume(&ada, "data").await;
    world.patch(&ada, &format!("/cluster/edit/{cluster}"), json!({ "deletion_protection": true })).await;

    insta::assert_json_snapshot!("list_requests", world.get(&ada, "/request/list").await.redacted());
    let of = async |key: &str, query: &str| {
        let listed = world.get(key, &format!("/request/list{query}")).await;
        let requests = listed.body["requests"].as_array().unwrap().iter();
        requests.map(|request| request["request_type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of(&ada, "?type=STORAGE_CREATE").await, ["STORAGE_CREATE"]);
    assert_eq!(of(&ada, "?type=&status=").await.len(), 3, "empty filters are none");
    assert_eq!(of(&ada, "?status=failed").await.len(), 0);
    assert_eq!(of(&ben, "").await.len(), 0);
    assert_eq!(of(&ben, "?org=true&status=COMPLETED").await.len(), 3);
    let bad = world.get(&ada, "/request/list?type=CLUSTER_EAT&status=DONE").await;
    insta::assert_json_snapshot!("list_requests_refused", bad.body["detail"]);
}

/// An id of the wrong kind is refused.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_id_kind_is_refused() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let cluster = world.cluster(&world.admin, "trainer").await;
    for id in [cluster.as_str(), "r-", "r-0", "%F0%9F%92%A9", "%00", "%FF", "r-00000000000O", "..", "a%2Fb"] {
        let refused = world.get(&world.admin, &format!("/request/info/{id}")).await;
        assert_eq!(refused.refusal(), (400, "invalid_id".to_owned()), "{id}");
    }
    let unknown = world.get(&world.admin, "/request/info/r-000000000000").await;
    assert_eq!(unknown.refusal(), (404, "not_found".to_owned()));
}
