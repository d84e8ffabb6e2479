//! Users, their organization and their preferences through HTTP.

use rstest::rstest;
use serde_json::json;

use crate::support::harness::{DatabaseKind, World};

/// The user info shows the caller.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn user_info_shows_caller(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", Some("acme")).await;
    let before = world.get(&key, "/user/info").await;
    let grant = json!({ "to": before.body["org_id"], "amount": 12.5 });
    assert_eq!(world.post(&world.admin, "/admin/grant", grant).await.status, 200);
    world.cluster(&key, "one").await;
    world.volume(&key, "data").await;

    let info = world.get(&key, "/user/info").await;
    insta::assert_json_snapshot!("user_info", info.redacted());
    assert_eq!(world.get(&key, "/me").await.body, info.body);
}

/// What callers see of themselves does not take longer the more they have: no statement reads the tables of it. This is
/// shown by hiding these tables.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn user_info_reads_only_counts(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", Some("acme")).await;
    let id = world.get(&key, "/me").await.text("org_id");
    assert_eq!(world.post(&world.admin, "/admin/grant", json!({ "to": id, "amount": 2 })).await.status, 200);
    world.cluster(&key, "one").await;
    world.volume(&key, "data").await;
    let limits = format!("/admin/limits/{id}");
    let calls =
        [(&key, "/me"), (&key, "/user/info"), (&key, "/user/organization/info"), (&world.admin, limits.as_str())];
    let mut before = Vec::new();
    for (key, path) in calls {
        before.push(world.get(key, path).await.body);
    }
    assert_eq!(
        (&before[0]["clusters"], &before[0]["volumes"], &before[0]["balance"]),
        (&json!(1), &json!(1), &json!(2.0))
    );
    assert_eq!((&before[0]["used"]["instances"], &before[0]["used"]["volume_gb"]), (&json!(1), &json!(10)));
    world.store.write(tarn_store::testing::hide_tables_of_what_exists).await.unwrap();
    for ((key, path), before) in calls.into_iter().zip(before) {
        let now = world.get(key, path).await;
        assert_eq!(now.status, 200, "{path} {now:?}");
        assert_eq!(now.body, before, "{path}");
    }
}

/// The organization info shows its members.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn organization_info_shows_members(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let first = world.user("ada@example.org", Some("acme")).await;
    let second = world.user("ben@example.org", Some("acme")).await;
    let info = world.get(&second, "/user/organization/info").await;
    insta::assert_json_snapshot!("organization_info", info.redacted());
    assert_eq!(world.get(&first, "/user/organization/info").await.body, info.body);
    let alone = world.user("cid@example.org", None).await;
    assert_eq!(world.get(&alone, "/user/organization/info").await.refusal(), (404, "no_organization".to_owned()));
}

/// Preferences are read and changed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn preferences_are_read_and_changed(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", None).await;
    let path = "/user/preferences";
    insta::assert_json_snapshot!("preferences", world.get(&key, path).await.body);

    let body = json!({ "notify_email_cluster_create": true, "balance_warning_threshold": 50.25, "autopay_reload_threshold": 20 });
    let changed = world.patch(&key, path, body).await;
    insta::assert_json_snapshot!("preferences_changed", changed.body);
    assert_eq!(world.get(&key, path).await.body, changed.body);
    let same = world.patch(&key, path, json!({ "notify_email_cluster_create": null })).await;
    assert_eq!(same.body, changed.body, "null is no change for what cannot be null");
    let cleared = world.patch(&key, path, json!({ "balance_warning_threshold": null })).await;
    assert_eq!(
        (&cleared.body["balance_warning_threshold"], &cleared.body["autopay_reload_threshold"]),
        (&json!(null), &json!(20.0))
    );

    for body in [json!({ "balance_warning_threshold": 20 }), json!({ "autopay_enabled": true })] {
        assert_eq!(world.patch(&key, path, body).await.refusal(), (400, "invalid_preferences".to_owned()));
    }
    let body = json!({ "balance_warning_threshold": 0, "autopay_reload_threshold": 19.99, "autopay_enabled": 1 });
    let refused = world.patch(&key, path, body).await;
    insta::assert_json_snapshot!("preferences_refused", refused.body["detail"]);
}
