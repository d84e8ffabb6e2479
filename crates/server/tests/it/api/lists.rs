//! Lists in pages, and whose things they show.

use rstest::rstest;
use serde_json::{Value, json};

use crate::support::harness::{DatabaseKind, World};

/// Every page of a list, as the names in `field`.
async fn pages(world: &World, key: &str, path: &str, list: &str, field: &str) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let answer = world.get(key, &format!("{path}&cursor={cursor}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let rows = answer.body[list].as_array().unwrap().iter();
        pages.push(rows.map(|row| row[field].as_str().unwrap().to_owned()).collect());
        match &answer.body["next_cursor"] {
            Value::String(next) => {
                assert!(answer.message().contains(next.as_str()), "the table says how it goes on");
                cursor.clone_from(next);
            }
            end => {
                assert_eq!(end, &Value::Null);
                return pages;
            }
        }
    }
}

/// Lists come in pages.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let key = world.user("ada@example.org", None).await;
    for name in ["a1", "a2", "a3", "a4", "a5"] {
        world.cluster(&key, name).await;
        world.volume(&key, name).await;
    }
    let expected = [vec!["a5", "a4"], vec!["a3", "a2"], vec!["a1"]];
    assert_eq!(pages(&world, &key, "/cluster/list?limit=2", "clusters", "name").await, expected);
    assert_eq!(pages(&world, &key, "/storage/list?limit=2", "volumes", "name").await, expected);
    assert_eq!(pages(&world, &key, "/cluster/list?limit=5", "clusters", "name").await.len(), 1, "no empty last page");
    assert_eq!(pages(&world, &key, "/request/list?limit=4", "requests", "request_id").await.len(), 3);
    assert_eq!(pages(&world, &world.admin, "/admin/user/list?limit=1", "users", "email").await.len(), 2);
    assert_eq!(pages(&world, &world.admin, "/admin/key/list?limit=1", "keys", "key_id").await.len(), 2);
}

/// An invalid cursor is refused.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_cursor_is_refused() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    for list in ["/cluster/list", "/storage/list", "/request/list", "/admin/user/list", "/admin/key/list"] {
        for cursor in ["x", "%00", "1.%27", "zz.c-0", "1", ".", "%F0%9F%92%A9.a", "ffffffffffffffffff.a"] {
            let refused = world.get(&world.admin, &format!("{list}?cursor={cursor}")).await;
            assert_eq!(refused.refusal(), (400, "invalid_cursor".to_owned()), "{list} {cursor}");
        }
        assert_eq!(world.get(&world.admin, &format!("{list}?limit=0&cursor=x")).await.status, 422, "{list}");
    }
}

/// Lists show what the caller created, or everything of the organization.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn lists_show_own_or_organization(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let (ada, ben) =
        (world.user("ada@example.org", Some("acme")).await, world.user("ben@example.org", Some("acme")).await);
    let other = world.user("eve@example.org", Some("evil")).await;
    world.cluster(&ada, "of-ada").await;
    world.cluster(&ben, "of-ben").await;
    world.cluster(&other, "of-eve").await;
    let names = async |key: &str, query: &str| {
        let listed = world.get(key, &format!("/cluster/list{query}")).await;
        listed.body["clusters"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&ada, "").await, [json!("of-ada")]);
    assert_eq!(names(&ada, "?include_org=True").await, [json!("of-ben"), json!("of-ada")]);
    assert_eq!(names(&ben, "?org=true").await, [json!("of-ben"), json!("of-ada")]);
    assert_eq!(names(&other, "?include_org=true").await, [json!("of-eve")]);
    assert_eq!(world.get(&ben, "/cluster/info/of-ada").await.status, 200, "members share");
    assert_eq!(world.delete(&ada, "/cluster/of-ben").await.status, 202, "and one administers");
}
