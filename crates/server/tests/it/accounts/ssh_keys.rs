//! Saved SSH keys through HTTP.

use rstest::rstest;
use serde_json::json;

use crate::support::harness::{DatabaseKind, World};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti user@example.com";

/// An SSH key is added, listed and removed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn ssh_key_lifecycle(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let (ada, ben) =
        (world.user("ada@example.org", Some("acme")).await, world.user("ben@example.org", Some("acme")).await);
    let added = world.post(&ada, "/user/ssh-key/add", json!({ "public_key": format!("{KEY}\n") })).await;
    assert_eq!(added.status, 200);
    insta::assert_json_snapshot!("add_ssh_key", added.redacted());
    let twice = world.post(&ada, "/user/ssh-key/add", json!({ "public_key": KEY, "name": "again" })).await;
    assert_eq!(twice.refusal(), (409, "ssh_key_exists".to_owned()));

    insta::assert_json_snapshot!("list_ssh_keys", world.get(&ada, "/user/ssh-key/list").await.redacted());
    assert_eq!(world.get(&ben, "/user/ssh-key/list").await.body["keys"], json!([]));
    let shared = world.get(&ben, "/user/ssh-key/list?include_org=true").await;
    assert_eq!(shared.body["keys"][0]["id"], added.body["key_id"]);

    let path = format!("/user/ssh-key/remove/{}", added.text("key_id"));
    assert_eq!(world.delete(&ada, &path).await.status, 200);
    assert_eq!(world.delete(&ada, &path).await.refusal(), (404, "not_found".to_owned()));
}

/// A text that is not an SSH key is refused.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_ssh_key_is_refused() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let private = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----";
    for text in ["", "hello", "ssh-ed25519 AAAA", private, "ssh-ed25519 \u{0} x", "é"] {
        let refused = world.post(&world.admin, "/user/ssh-key/add", json!({ "public_key": text })).await;
        assert_eq!(refused.refusal(), (400, "invalid_ssh_key".to_owned()), "{text:?}");
        assert!(!refused.message().contains("PRIVATE"), "a secret must not come back");
        let body = json!({ "instance_type": "1xCPU", "public_keys": [KEY, text] });
        let refused = world.post(&world.admin, "/cluster/create", body).await;
        assert_eq!(refused.refusal(), (400, "invalid_ssh_key".to_owned()), "{text:?}");
    }
    for name in ["", "a\u{7}b"] {
        let refused = world.post(&world.admin, "/user/ssh-key/add", json!({ "public_key": KEY, "name": name })).await;
        assert_eq!(refused.refusal(), (400, "invalid_name".to_owned()), "{name:?}");
    }
    assert_eq!(world.get(&world.admin, "/user/ssh-key/list").await.body["keys"], json!([]), "nothing changed");
    assert_eq!(world.get(&world.admin, "/cluster/list?all=true").await.body["clusters"], json!([]), "nothing changed");
}
