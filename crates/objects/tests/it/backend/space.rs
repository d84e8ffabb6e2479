//! Of the disk a part is left alone.

use std::time::Duration;

use tarn_objects::{Error, Settings};
use tarn_store::testing::DatabaseKind;

use crate::backend::support::with;

#[tokio::test]
async fn what_is_small_does_not_take_the_reserve_either() {
    // No disk has so much.
    let settings = Settings { reserve_bytes: 1 << 60, ..Settings::default() };
    let world = with(DatabaseKind::Sqlite, settings).await.unwrap();
    for size in [0, 1, 16 << 10, (16 << 10) + 1, 1 << 20] {
        assert!(matches!(world.put("a", &vec![0; size]).await, Err(Error::Full)), "{size}");
        world.clock.advance(Duration::from_millis(600));
    }
    world.has_files(0).await;
}
