//! Volumes through HTTP.

use rstest::rstest;
use serde_json::json;

use crate::support::harness::{DatabaseKind, World};

/// A volume is created, attached, detached and destroyed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn volume_lifecycle(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", Some("acme")).await;
    let cluster = world.cluster(&key, "trainer").await;

    let made = world.post(&key, "/storage/create", json!({ "size": 100, "name": "data" })).await;
    assert_eq!(made.status, 202);
    insta::assert_json_snapshot!("create_storage", made.redacted());
    let volume = made.text("storage_id");
    let pending = world.get(&key, &format!("/storage/info/{volume}")).await;
    assert!(pending.body["storage_info"]["explanation"].is_string(), "{pending:?}");
    world.settle().await;

    let body = json!({ "storage_id": volume, "cluster_ids": [cluster] });
    let attached = world.post(&key, "/storage/attach", body.clone()).await;
    assert_eq!(attached.status, 202);
    insta::assert_json_snapshot!("attach_storage", attached.redacted());
    assert_eq!(world.get(&key, "/cluster/info/trainer").await.body["cluster_info"]["status"], "RESTARTING");
    world.settle().await;
    let again = world.post(&key, "/storage/attach", body).await;
    assert_eq!(again.refusal(), (409, "cluster_has_storage".to_owned()));

    let listed = world.get(&key, "/storage/list?include_org=True").await;
    insta::assert_json_snapshot!("list_storage", listed.redacted());
    let info = world.get(&key, &format!("/storage/info/{volume}")).await;
    insta::assert_snapshot!("storage_info", info.redacted()["message"].as_str().unwrap());
    assert_eq!(info.body["storage_info"], listed.body["volumes"][0]);
    assert_eq!(world.get(&key, "/cluster/info/trainer").await.body["cluster_info"]["storage"], json!([volume]));
    let refused = world.delete(&key, &format!("/storage/{volume}")).await;
    assert_eq!(refused.refusal(), (409, "storage_attached".to_owned()));

    let body = json!({ "storage_id": volume, "cluster_id": "trainer", "live": false });
    let detached = world.post(&key, "/storage/detach", body).await;
    assert_eq!(detached.status, 202);
    insta::assert_json_snapshot!("detach_storage", detached.redacted());
    world.settle().await;
    let gone = world.delete(&key, &format!("/storage/{volume}")).await;
    assert_eq!(gone.status, 202);
    insta::assert_json_snapshot!("destroy_storage", gone.redacted());
    world.settle().await;
    let ended = world.get(&key, &format!("/storage/info/{volume}")).await;
    assert_eq!(ended.body["storage_info"]["status"], "DESTROYED");
    let empty = world.get(&key, "/storage/list").await;
    assert_eq!(empty.message(), "No storage volumes. Create one with `tp storage create 100`.");
}

/// A volume is edited.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn volume_is_edited(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", None).await;
    let body = json!({ "size_gb": 10, "tp_storage_name": "data", "deletion_protection": true });
    let volume = world.post(&key, "/storage/create", body).await.text("storage_id");
    world.settle().await;
    let (path, info) = (format!("/storage/edit/{volume}"), format!("/storage/info/{volume}"));
    assert_eq!(
        world.delete(&key, &format!("/storage/{volume}")).await.refusal(),
        (409, "deletion_protected".to_owned())
    );

    let grown = world.patch(&key, &path, json!({ "size_gb": 50, "tp_storage_name": "more" })).await;
    assert_eq!(grown.status, 202);
    assert!(world.get(&key, &info).await.message().contains("10 GB, growing to 50 GB"));
    world.settle().await;
    let after = world.get(&key, &info).await;
    assert_eq!(
        (&after.body["storage_info"]["size_gb"], &after.body["storage_info"]["name"]),
        (&json!(50), &json!("more"))
    );

    let smaller = world.patch(&key, &path, json!({ "size_gb": 49 })).await;
    assert_eq!(smaller.refusal(), (409, "storage_cannot_shrink".to_owned()));
    let too_far = world.patch(&key, &path, json!({ "size_gb": 1001 })).await;
    assert_eq!(too_far.refusal(), (409, "storage_grows_too_far".to_owned()));
    let too_much = world.post(&key, "/storage/create", json!({ "size": 951 })).await;
    assert_eq!(too_much.refusal(), (409, "pool_full".to_owned()));
    assert_eq!(world.patch(&key, &path, json!({})).await.refusal(), (400, "nothing_to_change".to_owned()));
}

/// Storage prices are shown.
#[tokio::test(flavor = "multi_thread")]
async fn storage_prices_are_shown() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let quote = world.get(&world.admin, "/storage/quote?size_gb=100").await;
    assert_eq!((quote.status, &quote.body["hourly_rate"]), (200, &json!(0.013699)));
    for (query, kind) in [("", "missing"), ("?size_gb=0", "greater_than_equal"), ("?size_gb=x", "int_parsing")] {
        let refused = world.get(&world.admin, &format!("/storage/quote{query}")).await;
        assert_eq!((refused.status, &refused.body["detail"][0]["type"]), (422, &json!(kind)), "{query}");
    }
}
