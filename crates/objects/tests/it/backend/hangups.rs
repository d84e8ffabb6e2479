//! Whoever hangs up in the middle of a call, and an engine that ends in the middle of it, leave the old object or the new one,
//! whole, and no file beside it.

use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;
use tarn_model::Ids;
use tarn_objects::Error;
use tarn_objects::find::Which;
use tarn_store::testing::{DatabaseKind, Locked, SeededIds};

use crate::backend::support::{World, world};

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_cut_short_is_whole_or_not_there(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(world) = world(engine).await else { return };
    let (world, chance) = (Arc::new(world), SeededIds::new(16));
    for round in 1..=60_u8 {
        let (putting, key) = (world.clone(), format!("k{}", round % 7));
        let put = tokio::spawn(async move { putting.put(&key, &vec![round; 40_000]).await });
        tokio::time::sleep(Duration::from_micros(chance.bits() % 3000)).await;
        put.abort();
        let _ = put.await;
    }
    // Work that goes on without its caller ends sooner or later; then everything agrees.
    let agrees = async {
        loop {
            let (there, usage) = (whole(&world).await, world.usage().await);
            if usage == (there * 40_000, there) && world.files() == there as usize {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let agreed = tokio::time::timeout(Duration::from_secs(60), agrees).await;
    assert!(agreed.is_ok(), "{} keys, {:?}, {} files", whole(&world).await, world.usage().await, world.files());
}

/// How many of the keys are there, each of them whole.
async fn whole(world: &World) -> u64 {
    let mut there = 0;
    for key in 0..7 {
        if let Ok(data) = world.get(&format!("k{key}"), &Which::Current).await {
            assert!(data.len() == 40_000 && data.iter().all(|byte| *byte == data[0] && byte % 7 == key));
            there += 1;
        }
    }
    there
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_is_cut_short_leaves_no_file(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(world) = world(engine).await else { return };
    let (world, chance) = (Arc::new(world), SeededIds::new(17));
    for round in 0..40 {
        world.put("k", &vec![round; 40_000]).await.unwrap();
        let deleting = world.clone();
        let delete = tokio::spawn(async move { deleting.objects.delete(&deleting.org, "first", "k").await });
        tokio::time::sleep(Duration::from_micros(chance.bits() % 1500)).await;
        delete.abort();
        let _ = delete.await;
    }
    // The last one may not have begun.
    world.objects.delete(&world.org, "first", "k").await.unwrap();
    world.has_files(0).await;
    assert_eq!(world.usage().await, (0, 0));
}

/// The writer of the database is a thread of its own: it commits what was sent to it, although nobody waits any more.
#[test]
fn an_engine_that_ends_loses_no_file_that_a_row_names() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (outer, chance) = (runtime(), SeededIds::new(18));
    let world = Arc::new(outer.block_on(world(DatabaseKind::Sqlite)).unwrap());
    for round in 0..60_u8 {
        let (engine, putting) = (runtime(), world.clone());
        let put = engine.spawn(async move { putting.put(&format!("k{round}"), &vec![round; 40_000]).await });
        outer.block_on(async { tokio::time::sleep(Duration::from_micros(chance.bits() % 3000)).await });
        // An engine that has ended has no threads: one that still wrote would be newer than the sweep that follows.
        engine.shutdown_timeout(Duration::from_secs(60));
        drop(put);
    }
    outer.block_on(async {
        // Whatever was sent before is committed when this is, since there is one writer.
        world.put("last", b"one").await.unwrap();
        let mut whole = 0;
        for round in 0..60_u8 {
            match world.get(&format!("k{round}"), &Which::Current).await {
                Ok(data) => {
                    assert!(data == vec![round; 40_000], "{round}");
                    whole += 1;
                }
                Err(Error::NoSuchKey { .. }) => {}
                Err(error) => panic!("{round}: {error}"),
            }
        }
        world.clock.advance(Duration::from_secs(20 * 365 * 24 * 3600));
        world.objects.sweep().await.unwrap();
        world.has_files(whole).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_a_put_may_be_unknown() {
    let world = world(DatabaseKind::Sqlite).await.unwrap();
    world.objects.count_request(&world.org);
    let locked = Locked::new(&world.fresh.database).unwrap();
    let (put, saved) = tokio::join!(world.put("k", &[7; 40_000]), world.objects.save_counts());
    drop(locked);
    assert!(matches!(put, Err(Error::Store(tarn_store::Error::Unavailable(_)))), "{put:?}");
    assert!(saved.is_err());
    assert_eq!(world.files(), 1, "it is left to the sweep, which asks the rows");
    world.clock.advance(Duration::from_secs(20 * 365 * 24 * 3600));
    assert_eq!(world.objects.sweep().await.unwrap().removed, 1);
    world.has_files(0).await;
    world.objects.save_counts().await.unwrap();
    let account = world.store.read(|tx| tarn_objects::accounts::get(tx, &world.org)).await.unwrap();
    assert_eq!(account.requests, 1, "what could not be counted then is counted later");
}
