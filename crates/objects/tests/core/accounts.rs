//! Accounts: keys, quotas, and the end of an account.

use rstest::rstest;
use tarn_objects::accounts::{disable, enable, get, rotate};
use tarn_objects::find::Which;
use tarn_objects::{Error, Settings};
use tarn_store::testing::Engine;

use crate::support::{with, world};

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_until_it_is_replaced(#[values(Engine::Sqlite, Engine::Postgres)] engine: Engine) {
    let Some(world) = world(engine).await else { return };
    let account = world.store.read(|tx| get(tx, &world.org)).await.unwrap();
    let first = world.objects.credentials(&account);
    assert_eq!((first.access_key_id.len(), first.secret_access_key.len()), (20, 40));
    assert!(!format!("{first:?}").contains(&first.secret_access_key), "secrets are not shown");
    for _ in 0..2 {
        let org = world.objects.organization_of(&first.access_key_id).await.unwrap();
        assert_eq!(org.as_ref(), Some(&world.org));
    }
    let org = world.org.clone();
    let (again, new) = world.store.write(move |tx| enable(tx, &org)).await.unwrap();
    assert_eq!((world.objects.credentials(&again), new), (first.clone(), false), "enabling twice changes nothing");
    let org = world.org.clone();
    let account = world.store.write(move |tx| rotate(tx, &org)).await.unwrap();
    world.objects.forget_keys();
    let second = world.objects.credentials(&account);
    assert_ne!(second.secret_access_key, first.secret_access_key);
    assert_eq!(world.objects.organization_of(&first.access_key_id).await.unwrap(), None);
    assert_eq!(world.objects.organization_of(&second.access_key_id).await.unwrap(), Some(world.org));
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_quota_holds_and_refusals_leave_nothing(#[values(Engine::Sqlite, Engine::Postgres)] engine: Engine) {
    let settings = Settings { quota_bytes: Some(100_000), reserve_bytes: 0, ..Settings::default() };
    let Some(world) = with(engine, settings).await else { return };
    world.put("a", &[1; 60_000]).await.unwrap();
    let refused = world.put("b", &[1; 60_000]).await;
    assert!(matches!(refused, Err(Error::QuotaExceeded { quota: 100_000, used: 60_000 })), "{refused:?}");
    world.put("c", &[1; 1000]).await.unwrap();
    assert_eq!(world.usage().await, (61_000, 2));
    world.has_files(1).await;
    world.objects.delete(&world.org, "first", "a").await.unwrap();
    world.put("b", &[1; 60_000]).await.unwrap();
    assert_eq!(world.usage().await, (61_000, 2));
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_emptied_when_it_is_given_up(#[values(Engine::Sqlite, Engine::Postgres)] engine: Engine) {
    let Some(world) = world(engine).await else { return };
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
    assert!(matches!(world.get("k1", &Which::Current).await, Err(Error::NoSuchBucket)));
    let org = world.org.clone();
    let (account, new) = world.store.write(move |tx| enable(tx, &org)).await.unwrap();
    assert!(new && account.bytes == 0 && account.objects == 0);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted(#[values(Engine::Sqlite, Engine::Postgres)] engine: Engine) {
    let Some(world) = world(engine).await else { return };
    for _ in 0..5 {
        world.objects.count_request(&world.org);
    }
    world.objects.save_counts().await.unwrap();
    world.objects.save_counts().await.unwrap();
    assert_eq!(world.store.read(|tx| get(tx, &world.org)).await.unwrap().requests, 5);
}
