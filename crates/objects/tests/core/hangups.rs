//! Whoever hangs up in the middle of a put leaves the old object or the new one, whole, and no file beside it.

use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;
use tarn_model::Ids;
use tarn_objects::find::Which;
use tarn_store::testing::{Engine, SeededIds};

use crate::support::world;

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_cut_short_is_whole_or_not_there(#[values(Engine::Sqlite, Engine::Postgres)] engine: Engine) {
    let Some(world) = world(engine).await else { return };
    let (world, chance) = (Arc::new(world), SeededIds::new(16));
    let mut there = 0;
    for round in 1..=60_u8 {
        let (putting, key) = (world.clone(), format!("k{}", round % 7));
        let put = tokio::spawn(async move { putting.put(&key, &vec![round; 40_000]).await });
        tokio::time::sleep(Duration::from_micros(chance.bits() % 3000)).await;
        put.abort();
        let _ = put.await;
    }
    // Work that goes on without its caller ends within moments; then nothing changes any more.
    let mut usage = world.usage().await;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = world.usage().await;
        if now == usage {
            break;
        }
        usage = now;
    }
    for key in 0..7 {
        if let Ok(data) = world.get(&format!("k{key}"), &Which::Current).await {
            assert!(data.len() == 40_000 && data.iter().all(|byte| *byte == data[0] && byte % 7 == key));
            there += 1;
        }
    }
    assert_eq!(usage, (there * 40_000, there));
    world.has_files(there as usize).await;
}
