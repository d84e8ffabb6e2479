//! Rows of object storage are read as they were saved, and lists are in byte order.

use rstest::rstest;
use tarn_model::Time;
use tarn_model::buckets::{Bucket, Versioning};
use tarn_model::ids::{BucketId, ContentId, FileId, OrgId, VersionId};
use tarn_model::objects::{Algorithm, Body, Checksum, Details, Marker, Object, Part, Scope, Upload, Version};
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, accounts, buckets, lifecycle_passes, objects, parts, uploads, versions};

use crate::support::{World, world};

async fn bucket(world: &World, name: &str) -> Bucket {
    let bucket = Bucket {
        id: BucketId::fresh(&*world.ids),
        org: world.owner.org.clone().unwrap(),
        creator: Some(world.owner.user.clone()),
        name: name.to_owned(),
        versioning: Versioning::Off,
        created: Time::from_micros(5),
    };
    let added = bucket.clone();
    world.store.write(move |tx| buckets::insert(tx, &added)).await.unwrap();
    bucket
}

fn object(bucket: &Bucket, key: &str, sequence: i64, body: Body) -> Object {
    let pairs = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    Object {
        bucket: bucket.id.clone(),
        key: key.to_owned(),
        version: None,
        sequence,
        modified: Time::from_micros(sequence),
        size: 3,
        etag: "900150983cd24fb0d6963f7d28e17f72".to_owned(),
        details: Details {
            headers: pairs("content-type", "text/plain"),
            metadata: pairs("farbe", "grün"),
            tags: pairs("a", "b"),
            checksum: Some(Checksum { algorithm: Algorithm::Crc32, scope: Scope::Full, value: "NSRBwg==".to_owned() }),
        },
        body,
    }
}

/// An account counts its usage.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn accounts_count_usage(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let org = world.owner.org.clone().unwrap();
    let of = org.clone();
    let write = world.store.write(move |tx| -> Result<_, Error> {
        accounts::insert(tx, &of)?;
        accounts::charge(tx, &of, 500, 2)?;
        accounts::count_requests(tx, &of, 7)?;
        let bytes = accounts::charge(tx, &of, 100, 0)?;
        accounts::release_usage(tx, &of, 200, 1)?;
        Ok(bytes)
    });
    assert_eq!(write.await.unwrap(), Some(600));
    let found = world.store.read(|tx| accounts::get(tx, &org)).await.unwrap().unwrap();
    assert_eq!((found.bytes, found.objects, found.requests, found.closing), (400, 1, 7, false));
    assert_eq!(found.legacy_key, None, "a new organization has none");
    let of = org.clone();
    let twice = world.store.write(move |tx| accounts::insert(tx, &of)).await;
    assert!(matches!(twice, Err(Error::Taken)));
    let of = org.clone();
    world.store.write(move |tx| accounts::close(tx, &of)).await.unwrap();
    assert_eq!(world.store.read(accounts::closing).await.unwrap().len(), 1);
}

/// Objects are read as they were saved, and can be replaced.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn objects_round_trip_and_are_replaced(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let bucket = bucket(&world, "first").await;
    let content = ContentId::fresh(&*world.ids);
    let small = object(&bucket, "a/../b", 1, Body::Inline(b"a\0b".to_vec()));
    let large = object(&bucket, "a/../b", 2, Body::Parts(content));
    for object in [small, large] {
        let added = object.clone();
        world.store.write(move |tx| objects::put(tx, &added)).await.unwrap();
        let found = world.store.read(|tx| objects::get(tx, &bucket.id, &object.key)).await.unwrap();
        assert_eq!(found.as_ref(), Some(&object));
        let found = world.store.read(|tx| objects::find(tx, &bucket.org, "first", &object.key)).await.unwrap();
        assert_eq!(found, Some(object));
    }
    let mut changed = object(&bucket, "a/../b", 1, Body::Inline(Vec::new()));
    changed.details.tags.clear();
    let stale = world.store.write(move |tx| objects::save_details(tx, &changed)).await;
    assert!(matches!(stale, Err(Error::Conflict)), "it was replaced by another object");
    let id = bucket.id.clone();
    world.store.write(move |tx| objects::remove(tx, &id, "a/../b")).await.unwrap();
    assert!(world.store.read(|tx| buckets::is_empty(tx, &bucket.id)).await.unwrap());
}

/// Keys are listed in byte order.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_in_byte_order(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (bucket, other) = (bucket(&world, "first").await, bucket(&world, "other").await);
    let mut keys = ["b", "a", "a/b", "a-b", "A", "é", "z", "ｚ", "\u{10ffff}", "\u{1}", "a b", "aé", "\u{e000}", "🦀"];
    let rows: Vec<_> = keys.iter().map(|key| object(&bucket, key, 1, Body::Inline(Vec::new()))).collect();
    let foreign = object(&other, "a", 1, Body::Inline(Vec::new()));
    let write = world.store.write(move |tx| -> Result<(), Error> {
        objects::put(tx, &foreign)?;
        rows.iter().try_for_each(|row| objects::put(tx, row))
    });
    write.await.unwrap();
    keys.sort_unstable();
    let list = |from: &'static str, until: Option<&'static str>, limit| {
        let (store, id) = (world.store.clone(), bucket.id.clone());
        async move {
            let found = store.read(|tx| objects::list(tx, &id, from, until, limit)).await.unwrap();
            found.into_iter().map(|listed| listed.key).collect::<Vec<_>>()
        }
    };
    assert_eq!(list("", None, 100).await, keys);
    assert_eq!(list("a", Some("b"), 100).await, ["a", "a b", "a-b", "a/b", "aé"]);
    assert_eq!(list("a\u{1}", None, 2).await, ["a b", "a-b"]);
}

/// Versions of a key are listed newest first.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn versions_are_listed_newest_first(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let bucket = bucket(&world, "first").await;
    let ids: Vec<_> = (0..3).map(|_| VersionId::fresh(&*world.ids)).collect();
    let old = Object { version: Some(ids[0].clone()), ..object(&bucket, "k", 1, Body::Inline(b"abc".to_vec())) };
    let null = object(&bucket, "k", 2, Body::Parts(ContentId::fresh(&*world.ids)));
    let (id, key, version) = (bucket.id.clone(), "k".to_owned(), Some(ids[2].clone()));
    let marker = Marker { bucket: id, key, version, sequence: 3, modified: Time::from_micros(3) };
    let later = object(&bucket, "l", 9, Body::Inline(Vec::new()));
    let all = [Version::Object(old), Version::Object(null), Version::Marker(marker), Version::Object(later)];
    let added = all.clone();
    let write = world.store.write(move |tx| added.iter().try_for_each(|version| versions::insert(tx, version)));
    write.await.unwrap();
    for version in &all[..3] {
        let found = world.store.read(|tx| versions::get(tx, &bucket.id, "k", version.id())).await.unwrap();
        assert_eq!(found.as_ref(), Some(version));
    }
    let newest = world.store.read(|tx| versions::newest(tx, &bucket.id, "k")).await.unwrap();
    assert_eq!(newest.as_ref(), Some(&all[2]));
    let listed = world.store.read(|tx| versions::list(tx, &bucket.id, "", None, 10)).await.unwrap();
    let order: Vec<_> = listed.iter().map(|listed| (listed.key.as_str(), listed.sequence)).collect();
    assert_eq!(order, [("k", 3), ("k", 2), ("k", 1), ("l", 9)]);
    assert_eq!(listed[0].object, None);
    let rest = world.store.read(|tx| versions::list_of(tx, &bucket.id, "k", 2, 10)).await.unwrap();
    assert_eq!(rest.iter().map(|listed| listed.sequence).collect::<Vec<_>>(), [1]);
    let id = bucket.id.clone();
    world.store.write(move |tx| versions::remove(tx, &id, "k", 3)).await.unwrap();
    let newest = world.store.read(|tx| versions::newest(tx, &bucket.id, "k")).await.unwrap();
    assert_eq!(newest.as_ref(), Some(&all[1]));
}

/// Uploads and parts are read as they were saved.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn uploads_and_parts_round_trip(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let bucket = bucket(&world, "first").await;
    let upload = |key: &str, created| Upload {
        id: ContentId::fresh(&*world.ids),
        bucket: bucket.id.clone(),
        key: key.to_owned(),
        details: Details::default(),
        checksum: Some((Algorithm::Crc64Nvme, Scope::Full)),
        created: Time::from_micros(created),
    };
    let all = [upload("a", 10), upload("a", 20), Upload { checksum: None, ..upload("b", 5) }];
    let added = all.clone();
    world.store.write(move |tx| added.iter().try_for_each(|upload| uploads::insert(tx, upload))).await.unwrap();
    for upload in &all {
        let found = world.store.read(|tx| uploads::get(tx, &upload.id)).await.unwrap();
        assert_eq!(found.as_ref(), Some(upload));
    }
    let listed = world.store.read(|tx| uploads::list(tx, &bucket.id, "a", Some("b"), 10)).await.unwrap();
    assert_eq!(listed.len(), 2);
    let after = listed[0].id.clone();
    let rest = world.store.read(|tx| uploads::list_of(tx, &bucket.id, "a", after.as_str(), 10)).await.unwrap();
    assert_eq!(rest, [listed[1].clone()]);
    let before = async |after: (i64, &str)| {
        let (time, after) = (Time::from_micros(11), (Time::from_micros(after.0), after.1));
        let found = world.store.read(|tx| uploads::created_before(tx, time, after, 10)).await.unwrap();
        found.into_iter().map(|(created, _)| created.as_micros()).collect::<Vec<_>>()
    };
    assert_eq!(before((i64::MIN, "")).await, [5, 10]);
    assert_eq!(before((5, all[2].id.as_str())).await, [10]);
    assert_eq!(before((10, all[0].id.as_str())).await, [0_i64; 0]);
    assert_eq!(world.store.read(|tx| uploads::some_of_bucket(tx, &bucket.id, 2)).await.unwrap().len(), 2);

    let part = |number| Part {
        content: all[0].id.clone(),
        number,
        file: FileId::fresh(&*world.ids),
        size: 1 << 40,
        etag: "e".to_owned(),
        checksum: (number == 2).then(|| "sum".to_owned()),
        modified: Time::from_micros(1),
    };
    let made = [part(10), part(2), part(1)];
    let added = made.clone();
    world.store.write(move |tx| added.iter().try_for_each(|part| parts::insert(tx, part))).await.unwrap();
    let found = world.store.read(|tx| parts::list(tx, &all[0].id, 1, 10)).await.unwrap();
    assert_eq!(found, [made[1].clone(), made[0].clone()]);
    assert!(world.store.read(|tx| parts::has_file(tx, &made[2].file)).await.unwrap());
    let id = all[0].id.clone();
    world.store.write(move |tx| parts::remove(tx, &id, 1)).await.unwrap();
    assert!(!world.store.read(|tx| parts::has_file(tx, &made[2].file)).await.unwrap());
    let more = [part(1), part(9), part(10_000)];
    let (id, added) = (all[0].id.clone(), more.clone());
    let write = world.store.write(move |tx| -> Result<(), Error> {
        added.iter().try_for_each(|part| parts::insert(tx, part))?;
        parts::remove_others(tx, &id, &[2, 9])
    });
    write.await.unwrap();
    let found = world.store.read(|tx| parts::list(tx, &all[0].id, 0, 10)).await.unwrap();
    assert_eq!(found, [made[1].clone(), more[1].clone()], "what is above the last is not kept either");
}

/// Organizations with a pass to continue take turns, in the order of their ids. Those whose passes wait are skipped.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn organizations_with_due_passes_take_turns(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let orgs: Vec<OrgId> = (1..=5).map(|number| format!("o-00000000000{number}").parse().unwrap()).collect();
    let (waiting, due) = (Time::from_micros(100), Time::from_micros(5));
    let rows = [(0, waiting), (1, waiting), (1, waiting), (1, due), (2, waiting), (3, due), (3, due), (4, waiting)];
    let passes: Vec<_> = rows.map(|(org, time)| (BucketId::fresh(&*world.ids), orgs[org].clone(), time)).into();
    let write = world.store.write(move |tx| -> Result<(), Error> {
        passes.iter().try_for_each(|(bucket, org, time)| lifecycle_passes::start(tx, bucket, org, *time))
    });
    write.await.unwrap();
    let next = |after: String, now: i64| {
        let store = &world.store;
        async move {
            let now = Time::from_micros(now);
            store.read(|tx| lifecycle_passes::next_organization(tx, now, &after)).await.unwrap()
        }
    };
    assert_eq!(next(String::new(), 5).await.as_ref(), Some(&orgs[1]));
    assert_eq!(next(orgs[1].to_string(), 99).await.as_ref(), Some(&orgs[3]));
    assert_eq!(next(orgs[3].to_string(), 99).await, None);
    assert_eq!(next(orgs[3].to_string(), 100).await.as_ref(), Some(&orgs[4]));
    assert_eq!(next(String::new(), 4).await, None);
    let first = orgs[1].clone();
    assert!(world.store.read(move |tx| lifecycle_passes::longest_due(tx, &first, due)).await.unwrap().is_some());
}
