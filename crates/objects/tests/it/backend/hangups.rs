//! A client that disconnects or an engine that stops in the middle of a call leaves the old object or the new one,
//! whole, and no other file.

use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;
use tarn_model::Ids;
use tarn_objects::Error;
use tarn_objects::find::VersionSelector;
use tarn_store::testing::{DatabaseKind, Locked, SeededIds};

use crate::backend::support::{World, world};

/// An interrupted put leaves the whole object or nothing.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_put_is_whole_or_absent(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (world, chance) = (Arc::new(world), SeededIds::new(16));
    for round in 1..=60_u8 {
        let (putting, key) = (world.clone(), format!("k{}", round % 7));
        let put = tokio::spawn(async move { putting.put(&key, &vec![round; 40_000]).await });
        tokio::time::sleep(Duration::from_micros(chance.bits() % 3000)).await;
        put.abort();
        let _ = put.await;
    }
    // Work that continues without its caller finishes eventually; then everything agrees.
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

/// Returns the number of keys that exist, and checks that each is whole.
async fn whole(world: &World) -> u64 {
    let mut there = 0;
    for key in 0..7 {
        if let Ok(data) = world.get(&format!("k{key}"), &VersionSelector::Current).await {
            assert!(data.len() == 40_000 && data.iter().all(|byte| *byte == data[0] && byte % 7 == key));
            there += 1;
        }
    }
    there
}

/// An interrupted deletion leaves no file behind.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_deletion_leaves_no_file(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (world, chance) = (Arc::new(world), SeededIds::new(17));
    for round in 0..40 {
        world.put("k", &vec![round; 40_000]).await.unwrap();
        let deleting = world.clone();
        let delete = tokio::spawn(async move { deleting.objects.delete(&deleting.org, "first", "k").await });
        tokio::time::sleep(Duration::from_micros(chance.bits() % 1500)).await;
        delete.abort();
        let _ = delete.await;
    }
    // The last deletion may not have started.
    world.objects.delete(&world.org, "first", "k").await.unwrap();
    world.has_files(0).await;
    assert_eq!(world.usage().await, (0, 0));
}

/// The writer of the database is a separate thread: it commits queued writes although no caller waits any more.
#[test]
fn stopped_engine_keeps_referenced_files() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (outer, chance) = (runtime(), SeededIds::new(18));
    let world = Arc::new(outer.block_on(world(DatabaseKind::Sqlite)).unwrap());
    for round in 0..60_u8 {
        let (engine, putting) = (runtime(), world.clone());
        let put = engine.spawn(async move { putting.put(&format!("k{round}"), &vec![round; 40_000]).await });
        outer.block_on(async { tokio::time::sleep(Duration::from_micros(chance.bits() % 3000)).await });
        // A stopped engine has no threads: a file that is still written would be newer than the sweep that follows.
        engine.shutdown_timeout(Duration::from_secs(60));
        drop(put);
    }
    outer.block_on(async {
        // Earlier writes are committed when this one is, since there is one writer.
        world.put("last", b"one").await.unwrap();
        let mut whole = 0;
        for round in 0..60_u8 {
            match world.get(&format!("k{round}"), &VersionSelector::Current).await {
                Ok(data) => {
                    assert!(data == vec![round; 40_000], "{round}");
                    whole += 1;
                }
                Err(Error::NoSuchKey) => {}
                Err(error) => panic!("{round}: {error}"),
            }
        }
        world.clock.advance(Duration::from_secs(20 * 365 * 24 * 3600));
        world.objects.sweep().await.unwrap();
        world.has_files(whole).await;
    });
}

/// The file of a put with an unknown outcome is left to the sweep, which goes by the clock that dates files: the time of
/// the engine may differ from it.
#[tokio::test(flavor = "multi_thread")]
async fn put_with_unknown_outcome_is_left_to_sweep() {
    let world = world(DatabaseKind::Sqlite).await.unwrap();
    world.objects.count_request("TARN", &world.holder());
    let locked = Locked::new(&world.fresh.database).unwrap();
    let (put, saved) = tokio::join!(world.put("k", &[7; 40_000]), world.objects.save_counts());
    drop(locked);
    assert!(matches!(put, Err(Error::Store(tarn_store::Error::Unavailable(_)))), "{put:?}");
    assert!(saved.is_err());
    assert_eq!(world.files(), 1, "it is left to the sweep, which checks the rows");
    let years = Duration::from_secs(20 * 365 * 24 * 3600);
    world.clock.advance(years);
    world.clock.jump(-2 * years.as_micros() as i64);
    assert_eq!(world.objects.sweep().await.unwrap().removed, 0, "by the clock of the host the file is young");
    world.clock.jump(2 * years.as_micros() as i64);
    assert_eq!(world.objects.sweep().await.unwrap().removed, 1);
    world.has_files(0).await;
    world.objects.save_counts().await.unwrap();
    let account = world.store.read(|tx| tarn_objects::accounts::get(tx, &world.org)).await.unwrap();
    assert_eq!(account.requests, 1, "unsaved counts are saved later");
}
