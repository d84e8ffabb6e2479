//! Accounts: quotas, and the end of an account.

use rstest::rstest;
use tarn_model::buckets::Versioning;
use tarn_model::ids::OrgId;
use tarn_model::objects::Details;
use tarn_objects::accounts::{disable, enable};
use tarn_objects::complete::Expected;
use tarn_objects::files::Sums;
use tarn_objects::find::VersionSelector;
use tarn_objects::put::Condition;
use tarn_objects::{Error, Settings};
use tarn_store::testing::{DatabaseKind, SeededIds};

use crate::backend::support::{with, world};
use crate::backend::uploads::{chosen, part};

/// The quota is enforced, and a refused put leaves nothing behind.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn quota_refuses_without_traces(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let settings = Settings { quota_bytes: Some(100_000), reserve_bytes: 0, ..Settings::default() };
    let Some(world) = with(database, settings).await else { return };
    world.put("a", &[1; 60_000]).await.unwrap();
    let refused = world.put("b", &[1; 60_000]).await;
    assert!(
        matches!(refused, Err(Error::QuotaExceeded { quota: 100_000, used: 60_000, asked: 60_000 })),
        "{refused:?}"
    );
    world.put("c", &[1; 1000]).await.unwrap();
    assert_eq!(world.usage().await, (61_000, 2));
    world.has_files(1).await;
    world.objects.delete(&world.org, "first", "a").await.unwrap();
    world.put("b", &[1; 60_000]).await.unwrap();
    assert_eq!(world.usage().await, (61_000, 2));

    world.put("b", &[2; 90_000]).await.unwrap();
    let refused = world.put("b", &[2; 99_001]).await;
    assert!(matches!(refused, Err(Error::QuotaExceeded { used: 91_000, .. })), "{refused:?}");
    let (objects, location) = (&world.objects, world.location("parts"));
    let upload = objects.begin_upload(&location, Details::default(), None).await.unwrap().id.to_string();
    part(objects, &location, &upload, 1, vec![1; 8000]).await.unwrap();
    part(objects, &location, &upload, 1, vec![2; 8500]).await.unwrap();
    assert!(matches!(part(objects, &location, &upload, 2, vec![2; 8500]).await, Err(Error::QuotaExceeded { .. })));
    assert_eq!(world.usage().await, (99_500, 2), "a replaced part frees its space for the new one");
}

/// An organization can have its own quota.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn organization_has_its_own_quota(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let org = OrgId::fresh(&SeededIds::new(7));
    let settings = Settings {
        quota_bytes: Some(100),
        quotas_bytes: [(org, 50_000)].into(),
        reserve_bytes: 0,
        ..Settings::default()
    };
    let Some(world) = with(database, settings).await else { return };
    assert_eq!(world.objects.quota_bytes(&OrgId::fresh(&SeededIds::new(8))), Some(100));
    world.put("a", &[1; 40_000]).await.unwrap();
    assert!(matches!(world.put("b", &[1; 40_000]).await, Err(Error::QuotaExceeded { quota: 50_000, .. })));
}

/// A disabled account refuses writes: an acknowledged write must not be erased by an earlier disabling.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn disabled_account_refuses_writes(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (objects, location) = (&world.objects, world.location("k"));
    let upload = objects.begin_upload(&location, Details::default(), None).await.unwrap();
    let id = upload.id.to_string();
    let first = part(objects, &location, &id, 1, vec![1; 100]).await.unwrap();
    let mut intake = objects.intake(&location, None, Sums::with(None)).await.unwrap();
    intake.push(vec![7; 100_000].into()).await.unwrap();
    let mut second = objects.intake_part(&location, &upload, 2, None, Sums::with(None)).await.unwrap();
    second.push(vec![7; 100_000].into()).await.unwrap();
    let org = world.org.clone();
    world.store.write(move |tx| disable(tx, &org, false)).await.unwrap();

    let put = objects.put(&location, intake.finish().await.unwrap(), Details::default(), Condition::default()).await;
    assert!(matches!(put, Err(Error::NotEnabled)), "{put:?}");
    let put = objects.put_part(&location, &id, 2, second.finish().await.unwrap(), None).await;
    assert!(matches!(put, Err(Error::NotEnabled)), "{put:?}");
    let chosen = chosen(&[&first]);
    let completed = objects.complete_upload(&location, &id, chosen, Expected::default(), Condition::default()).await;
    assert!(matches!(completed, Err(Error::NotEnabled)), "{completed:?}");
    let begun = objects.begin_upload(&location, Details::default(), None).await;
    assert!(matches!(begun, Err(Error::NotEnabled)), "{begun:?}");
    assert!(matches!(objects.create_bucket(&world.org, None, "second").await, Err(Error::NotEnabled)));
    let versioning = objects.set_versioning(&world.org, "first", Versioning::Enabled).await;
    assert!(matches!(versioning, Err(Error::NotEnabled)), "{versioning:?}");
    let tagged = objects.set_tags(&world.org, "first", "k", &VersionSelector::Current, Vec::new()).await;
    assert!(matches!(tagged, Err(Error::NotEnabled)), "{tagged:?}");
    world.has_files(1).await;
    objects.empty_closed().await.unwrap();
    world.has_files(0).await;
    assert!(matches!(world.put("k", b"late").await, Err(Error::NoSuchBucket)));
}

/// A disabled account is emptied.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn disabled_account_is_emptied(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    for number in 0..20 {
        world.put(&format!("k{number}"), &vec![1; number * 2000]).await.unwrap();
    }
    let org = world.org.clone();
    let refused = world.store.write(move |tx| disable(tx, &org, false)).await;
    assert!(matches!(refused, Err(Error::HoldsObjects(20))), "{refused:?}");
    let org = world.org.clone();
    world.store.write(move |tx| disable(tx, &org, true)).await.unwrap();
    let org = world.org.clone();
    let closing = world.store.write(move |tx| enable(tx, &org)).await;
    assert!(matches!(closing, Err(Error::Closing)), "{closing:?}");
    world.objects.empty_closed().await.unwrap();
    world.has_files(0).await;
    assert!(matches!(world.get("k1", &VersionSelector::Current).await, Err(Error::NoSuchBucket)));
    let org = world.org.clone();
    let (account, new) = world.store.write(move |tx| enable(tx, &org)).await.unwrap();
    assert!(new && account.bytes == 0 && account.objects == 0);
}
