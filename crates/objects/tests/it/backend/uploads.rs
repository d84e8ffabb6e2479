//! Multipart uploads: their completion, refusals, and what aborted uploads leave behind.

use bytes::Bytes;
use rstest::rstest;
use tarn_model::Time;
use tarn_model::ids::{BucketId, ContentId};
use tarn_model::objects::{Algorithm, Details, Part, Scope, Upload};
use tarn_objects::complete::{ChosenPart, Expected};
use tarn_objects::files::{Received, Sums};
use tarn_objects::find::VersionSelector;
use tarn_objects::put::{Condition, ObjectLocation};
use tarn_objects::{Error, Objects};
use tarn_store::testing::{DatabaseKind, SeededIds};

use crate::backend::support::world;

const MIN: usize = 5 << 20;

pub(crate) async fn part(
    objects: &Objects,
    location: &ObjectLocation,
    upload: &str,
    number: u32,
    data: Vec<u8>,
) -> Result<Part, Error> {
    let sums = Sums::with(Some(Algorithm::Crc32));
    let begun = objects.upload(location, upload).await?;
    let mut intake = objects.intake_part(location, &begun, number, Some(data.len() as u64), sums).await?;
    intake.push(Bytes::from(data)).await?;
    let received: Received = intake.finish().await?;
    let sum = received.crc32.map(|sum| base64_simd::STANDARD.encode_to_string(sum));
    objects.put_part(location, upload, number, received, sum).await
}

pub(crate) fn chosen(parts: &[&Part]) -> Vec<ChosenPart> {
    let choose =
        |part: &&Part| ChosenPart { number: part.number, etag: part.etag.clone(), checksum: part.checksum.clone() };
    parts.iter().map(choose).collect()
}

/// The chosen parts of an upload become an object.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn parts_become_object(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (objects, location) = (&world.objects, world.location("k"));
    let checksum = Some((Algorithm::Crc32, Scope::Full));
    let upload = objects.begin_upload(&location, Details::default(), checksum).await.unwrap().id.to_string();
    let second = part(objects, &location, &upload, 7, b"tail".to_vec()).await.unwrap();
    part(objects, &location, &upload, 1, vec![9; 10]).await.unwrap();
    let first = part(objects, &location, &upload, 1, vec![1; MIN]).await.unwrap();
    let unused = part(objects, &location, &upload, 3, vec![3; 100]).await.unwrap();
    world.has_files(3).await;
    assert_eq!(world.usage().await, (MIN as u64 + 104, 0));

    let complete =
        |chosen, expected| objects.complete_upload(&location, &upload, chosen, expected, Condition::default());
    let wrong_order = complete(chosen(&[&second, &first]), Expected::default()).await;
    assert!(matches!(wrong_order, Err(Error::InvalidPartOrder)));
    let small = complete(chosen(&[&first, &unused, &second]), Expected::default()).await;
    assert!(matches!(small, Err(Error::PartTooSmall { number: 3, size: 100 })));
    let mut wrong = chosen(&[&first]);
    wrong[0].etag = second.etag.clone();
    assert!(matches!(complete(wrong, Expected::default()).await, Err(Error::InvalidPart(1))));
    let expected = Expected { checksum: Some("AAAAAA==".to_owned()), size: None };
    assert!(matches!(complete(chosen(&[&first, &second]), expected).await, Err(Error::BadChecksum)));

    let (stored, sum) = complete(chosen(&[&first, &second]), Expected::default()).await.unwrap();
    assert!(stored.etag.ends_with("-2") && stored.etag.len() == 34, "{}", stored.etag);
    let mut whole = vec![1; MIN];
    whole.extend_from_slice(b"tail");
    assert!(world.get("k", &VersionSelector::Current).await.unwrap() == whole);
    use s3s::crypto::Checksum as _;
    let crc = base64_simd::STANDARD.encode_to_string(s3s::crypto::Crc32::checksum(&whole));
    assert_eq!(sum.map(|sum| sum.value), Some(crc), "the sum of the object is computed from those of the parts");
    world.has_files(2).await;
    assert_eq!(world.usage().await, (MIN as u64 + 4, 1));

    // A client that lost the response asks again.
    let (again, _) = complete(chosen(&[&first, &second]), Expected::default()).await.unwrap();
    assert_eq!(again.etag, stored.etag);
    let object = world.find("k", &VersionSelector::Current).await.unwrap();
    let range = objects.read(&object, MIN as u64 - 2..MIN as u64 + 2).await.unwrap();
    let pieces: Vec<_> = futures::StreamExt::collect(range).await;
    let bytes: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.unwrap().to_vec()).collect();
    assert_eq!(bytes, [1, 1, b't', b'a'], "ranges cross parts");

    let copied =
        objects.copy(&object, &world.location("copy"), Details::default(), Condition::default()).await.unwrap();
    assert_eq!(copied.etag, stored.etag);
    objects.delete(&world.org, "first", "k").await.unwrap();
    world.has_files(2).await;
    assert!(world.get("copy", &VersionSelector::Current).await.unwrap() == whole, "a copy outlives its original");
    assert_eq!(world.usage().await, (MIN as u64 + 4, 1));
}

/// Aborted and abandoned uploads leave nothing behind.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn aborted_uploads_leave_nothing(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (objects, location) = (&world.objects, world.location("k"));
    let mut uploads = Vec::new();
    for _ in 0..3 {
        let upload = objects.begin_upload(&location, Details::default(), None).await.unwrap().id.to_string();
        part(objects, &location, &upload, 1, vec![1; 1000]).await.unwrap();
        uploads.push(upload);
    }
    objects.abort_upload(&location, &uploads[0]).await.unwrap();
    assert!(matches!(objects.abort_upload(&location, &uploads[0]).await, Err(Error::NoSuchUpload)));
    assert!(matches!(part(objects, &location, &uploads[0], 2, vec![1]).await, Err(Error::NoSuchUpload)));
    assert!(matches!(objects.upload(&world.location("other"), &uploads[1]).await, Err(Error::NoSuchUpload)));
    world.has_files(2).await;
    assert_eq!(objects.abort_abandoned().await.unwrap(), 0);
    // An upload without a bucket, older than the others.
    let lost = Upload {
        id: ContentId::fresh(&SeededIds::new(99)),
        bucket: BucketId::fresh(&SeededIds::new(99)),
        key: "lost".to_owned(),
        details: Details::default(),
        checksum: None,
        created: Time::from_micros(1),
    };
    world.store.write(move |tx| tarn_store::uploads::insert(tx, &lost)).await.unwrap();
    world.clock.advance(std::time::Duration::from_secs(8 * 24 * 3600));
    assert_eq!(objects.abort_abandoned().await.unwrap(), 2);
    world.has_files(0).await;
    assert_eq!(world.usage().await, (0, 0));
}

/// A bucket is removed with any number of open uploads.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn bucket_is_removed_with_many_uploads(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let (objects, location) = (&world.objects, world.location("k"));
    let bucket = objects.bucket(&world.org, "first").await.unwrap().id;
    let first = objects.begin_upload(&location, Details::default(), None).await.unwrap();
    part(objects, &location, first.id.as_str(), 1, vec![1; 1000]).await.unwrap();
    world.put("object", b"there").await.unwrap();
    let full = objects.remove_bucket(&world.org, None, "first").await;
    assert!(matches!(full, Err(Error::BucketNotEmpty)), "{full:?}");
    objects.upload(&location, first.id.as_str()).await.unwrap();
    objects.delete(&world.org, "first", "object").await.unwrap();
    // More than one transaction removes.
    let write = world.store.write(move |tx| -> Result<(), Error> {
        for number in 0..1200 {
            let (id, key) = (ContentId::fresh(tx.ids()), format!("k{number}"));
            let upload = Upload { id, bucket: bucket.clone(), key, ..first.clone() };
            tarn_store::uploads::insert(tx, &upload)?;
        }
        Ok(())
    });
    write.await.unwrap();
    objects.remove_bucket(&world.org, None, "first").await.unwrap();
    assert!(matches!(objects.bucket(&world.org, "first").await, Err(Error::NoSuchBucket)));
    world.has_files(0).await;
    assert_eq!(world.usage().await, (0, 0));
}
