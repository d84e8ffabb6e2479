//! The rules for the life of objects: what they remove, and when.

use std::time::Duration;

use rstest::rstest;
use tarn_model::buckets::Versioning;
use tarn_model::object_rules::{Expiry, ObjectRule, OldVersions};
use tarn_model::objects::{Details, ListedObject};
use tarn_objects::find::VersionSelector;
use tarn_objects::list::{Entry, Query};
use tarn_objects::put::StoredVersion;
use tarn_store::testing::DatabaseKind;

use crate::backend::support::{World, world};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn rule(prefix: &str) -> ObjectRule {
    ObjectRule { id: prefix.to_owned(), enabled: true, prefix: prefix.to_owned(), ..ObjectRule::default() }
}

async fn set(world: &World, rules: Vec<ObjectRule>) {
    world.objects.set_object_rules(&world.org, "first", Some(rules)).await.unwrap();
}

/// Applies the rules and returns how many rows they removed.
async fn apply(world: &World) -> u64 {
    let applied = world.objects.apply_object_rules().await.unwrap();
    assert!(!applied.has_more);
    applied.removed
}

async fn keys(world: &World) -> Vec<String> {
    let query = Query { limit: 1000, ..Query::default() };
    let page = world.objects.list(&world.org, "first", &query).await.unwrap();
    let key = |entry: Entry<ListedObject>| match entry {
        Entry::Item(listed) => listed.key,
        Entry::Prefix(prefix) => prefix,
    };
    page.entries.into_iter().map(key).collect()
}

/// Objects are deleted by their age, their prefix, their size and their tags.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn rules_delete_objects(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    for key in ["a/old", "b/tagged", "b/untagged", "c/small", "d/disabled", "other"] {
        world.put(key, b"x").await.unwrap();
    }
    world.put("c/large", &[1; 50_000]).await.unwrap();
    let tags = vec![("keep".to_owned(), "no".to_owned()), ("more".to_owned(), String::new())];
    let set_tags = world.objects.set_tags(&world.org, "first", "b/tagged", &VersionSelector::Current, tags);
    set_tags.await.unwrap();
    let days = Some(Expiry::Days(3));
    set(
        &world,
        vec![
            ObjectRule { expiry: days, ..rule("a/") },
            ObjectRule { expiry: days, tags: vec![("keep".into(), "no".into())], ..rule("b/") },
            ObjectRule { expiry: days, larger_than: Some(1000), ..rule("c/") },
            ObjectRule { expiry: days, enabled: false, ..rule("d/") },
        ],
    )
    .await;
    world.clock.advance(2 * DAY);
    world.put("a/new", b"x").await.unwrap();
    assert_eq!(apply(&world).await, 0, "three days have not passed");
    world.clock.advance(2 * DAY);
    assert_eq!(apply(&world).await, 3);
    assert_eq!(keys(&world).await, ["a/new", "b/untagged", "c/small", "d/disabled", "other"]);
    assert_eq!(world.usage().await, (5, 5), "the account is charged for what is left");
    world.has_files(0).await;
    assert_eq!(apply(&world).await, 0, "there is one pass a day");
    world.clock.advance(3 * DAY);
    assert_eq!(apply(&world).await, 1);
    world.objects.set_object_rules(&world.org, "first", None).await.unwrap();
    world.clock.advance(99 * DAY);
    assert_eq!((apply(&world).await, keys(&world).await.len()), (0, 4), "without rules nothing is removed");
}

/// A rule applies to all keys with its prefix, also where a longer prefix of another rule ends before them.
#[tokio::test]
async fn rules_with_nested_prefixes_apply() {
    let world = world(DatabaseKind::Sqlite).await.unwrap();
    for key in ["a", "b/1", "bz", "c"] {
        world.put(key, b"x").await.unwrap();
    }
    let rules = ["a", "b", "b/"].map(|prefix| ObjectRule { expiry: Some(Expiry::Days(1)), ..rule(prefix) });
    set(&world, rules.to_vec()).await;
    world.clock.advance(3 * DAY);
    assert_eq!((apply(&world).await, keys(&world).await), (3, vec!["c".to_owned()]));
}

/// Old versions are removed except the newest of them, and delete markers that hide nothing.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn rules_remove_old_versions(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    world.objects.set_versioning(&world.org, "first", Versioning::Enabled).await.unwrap();
    for number in 0..5 {
        world.put("kept", &[number]).await.unwrap();
        world.put("deleted", &[number]).await.unwrap();
    }
    world.objects.delete(&world.org, "first", "deleted").await.unwrap();
    let versions = |key: &'static str| {
        let (objects, org) = (&world.objects, &world.org);
        async move {
            let query = Query { limit: 1000, prefix: key.to_owned(), ..Query::default() };
            objects.list_versions(org, "first", &query, None).await.unwrap().entries.len()
        }
    };
    set(
        &world,
        vec![ObjectRule {
            old_versions: Some(OldVersions { days: 1, kept: 1 }),
            removes_lone_markers: true,
            ..rule("")
        }],
    )
    .await;
    assert_eq!(apply(&world).await, 0);
    world.clock.advance(2 * DAY);
    assert_eq!(apply(&world).await, 7, "three of one key, four of the other");
    assert_eq!((versions("kept").await, versions("deleted").await), (2, 2));
    set(
        &world,
        vec![ObjectRule {
            old_versions: Some(OldVersions { days: 1, kept: 0 }),
            removes_lone_markers: true,
            ..rule("")
        }],
    )
    .await;
    let removed = apply(&world).await;
    world.clock.advance(DAY);
    assert_eq!(removed + apply(&world).await, 3, "the last old versions, and the marker that hides nothing any more");
    assert_eq!((versions("kept").await, versions("deleted").await), (1, 0));
    assert_eq!(world.usage().await, (1, 1));
}

/// Where versions are kept, a rule hides an object behind a delete marker.
#[tokio::test]
async fn rules_hide_versioned_objects() {
    let world = world(DatabaseKind::Sqlite).await.unwrap();
    world.objects.set_versioning(&world.org, "first", Versioning::Enabled).await.unwrap();
    let stored = world.put("k", b"x").await.unwrap();
    set(&world, vec![ObjectRule { expiry: Some(Expiry::Days(1)), ..rule("") }]).await;
    world.clock.advance(3 * DAY);
    assert_eq!((apply(&world).await, keys(&world).await.len()), (1, 0));
    let StoredVersion::Id(version) = stored.version else { panic!("it has a version") };
    world.find("k", &VersionSelector::Version(Some(version))).await.unwrap();
}

/// Uploads that are not completed are aborted.
#[tokio::test]
async fn rules_abort_uploads() {
    let world = world(DatabaseKind::Sqlite).await.unwrap();
    for key in ["a/1", "a/2", "b/1"] {
        world.objects.begin_upload(&world.location(key), Details::default(), None).await.unwrap();
    }
    set(&world, vec![ObjectRule { abort_days: Some(2), ..rule("a/") }]).await;
    assert_eq!(apply(&world).await, 0);
    world.clock.advance(4 * DAY);
    assert_eq!(apply(&world).await, 2);
    let query = Query { limit: 1000, ..Query::default() };
    assert_eq!(world.objects.list_uploads(&world.org, "first", &query, None).await.unwrap().entries.len(), 1);
}

/// A pass continues among the versions of one key and among the uploads of one key, of which a page has only some.
#[tokio::test]
async fn pages_end_within_a_key() {
    let world = world(DatabaseKind::Sqlite).await.unwrap();
    world.objects.set_versioning(&world.org, "first", Versioning::Enabled).await.unwrap();
    for _ in 0..520 {
        world.put("k", b"x").await.unwrap();
    }
    let location = world.location("k");
    let begin = || world.objects.begin_upload(&location, Details::default(), None);
    for begun in futures::future::join_all((0..520).map(|_| begin())).await {
        begun.unwrap();
    }
    let old_versions = Some(OldVersions { days: 1, kept: 3 });
    set(&world, vec![ObjectRule { old_versions, abort_days: Some(1), ..rule("k") }]).await;
    assert_eq!(apply(&world).await, 0);
    world.clock.advance(3 * DAY);
    assert_eq!(apply(&world).await, 519 - 3 + 520);
    assert_eq!(apply(&world).await, 0);
}

/// A pass continues over many pages, and begins again with the rules that were set meanwhile.
#[tokio::test]
async fn passes_have_pages() {
    let world = world(DatabaseKind::Sqlite).await.unwrap();
    let names: Vec<String> = (0..620).map(|number| format!("{number:04}")).collect();
    for stored in futures::future::join_all(names.iter().map(|name| world.put(name, b"x"))).await {
        stored.unwrap();
    }
    let ten = ObjectRule { expiry: Some(Expiry::Days(1)), ..rule("06") };
    set(&world, vec![ten.clone()]).await;
    world.clock.advance(3 * DAY);
    assert_eq!(apply(&world).await, 20);
    let all = ObjectRule { expiry: Some(Expiry::Days(1)), ..rule("0") };
    set(&world, vec![ten, all]).await;
    assert_eq!((apply(&world).await, keys(&world).await.len()), (600, 0));
}
