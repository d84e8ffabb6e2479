//! A reader reads a whole object, although it is overwritten or deleted meanwhile.

use std::time::Duration;

use futures::StreamExt;
use rstest::rstest;
use tarn_objects::Error;
use tarn_objects::find::VersionSelector;
use tarn_store::testing::DatabaseKind;

use crate::backend::support::world;

/// A reader finishes an object that is overwritten meanwhile.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn reader_finishes_removed_object(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let data: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
    world.put("k", &data).await.unwrap();
    let object = world.find("k", &VersionSelector::Current).await.unwrap();
    let mut reading = world.objects.read(&object, 0..object.size).await.unwrap();
    let mut read = reading.next().await.unwrap().unwrap().to_vec();
    world.put("k", b"other").await.unwrap();
    assert_eq!(world.files(), 1, "the file is kept for its reader");
    let late = world.objects.read(&object, 0..object.size).await.map(drop);
    assert!(matches!(late, Err(Error::NoSuchVersion)), "no new reader may start: {late:?}");
    world.clock.advance(Duration::from_secs(20 * 365 * 24 * 3600));
    world.objects.sweep().await.unwrap();
    assert_eq!(world.files(), 1, "the sweep waits for the reader, too");
    while let Some(piece) = reading.next().await {
        read.extend_from_slice(&piece.unwrap());
    }
    assert!(read == data, "{} bytes", read.len());
    drop(reading);
    world.has_files(0).await;
}

/// Concurrent overwrites are read as whole objects.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn overwrites_are_read_whole(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    world.put("k", &[0; 100_000]).await.unwrap();
    let writer = async {
        for round in 1..40_u8 {
            world.put("k", &vec![round; 20_000 + usize::from(round) * 3000]).await.unwrap();
        }
    };
    let reader = async {
        let mut whole = 0;
        for _ in 0..80 {
            match world.get("k", &VersionSelector::Current).await {
                Ok(data) => {
                    whole += 1;
                    assert!(data.iter().all(|byte| *byte == data[0]), "a mixture of two objects");
                    assert!(data[0] == 0 || data.len() == 20_000 + usize::from(data[0]) * 3000);
                }
                // It was replaced between the lookup and the read: the S3 adapter looks it up again.
                Err(Error::NoSuchVersion) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(whole > 0);
    };
    tokio::join!(writer, reader);
    world.has_files(1).await;
    assert_eq!(world.usage().await, (20_000 + 39 * 3000, 1));
}

/// A missing file is reported before the response starts.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn missing_file_fails_before_response(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    world.put("k", &[7; 100_000]).await.unwrap();
    let object = world.find("k", &VersionSelector::Current).await.unwrap();
    for shard in std::fs::read_dir(&world.directory).unwrap() {
        for file in std::fs::read_dir(shard.unwrap().path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
    let read = world.objects.read(&object, 0..object.size).await.map(drop);
    assert!(matches!(read, Err(Error::File(_))), "{read:?}");
}
