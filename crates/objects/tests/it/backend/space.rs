//! A reserve of the disk stays free.

use std::time::Duration;

use tarn_objects::{Error, Settings};
use tarn_store::testing::DatabaseKind;

use crate::backend::support::with;

/// Small objects do not use the reserve of the disk either.
#[tokio::test]
async fn small_objects_respect_reserve() {
    // No disk has this much space.
    let settings = Settings { reserve_bytes: 1 << 60, ..Settings::default() };
    let world = with(DatabaseKind::Sqlite, settings).await.unwrap();
    for size in [0, 1, 16 << 10, (16 << 10) + 1, 1 << 20] {
        assert!(matches!(world.put("a", &vec![0; size]).await, Err(Error::Full)), "{size}");
        world.clock.advance(Duration::from_millis(600));
    }
    world.has_files(0).await;
}
