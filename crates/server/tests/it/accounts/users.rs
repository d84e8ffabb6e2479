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
