//! Bodies come in whole, with their sums, or not at all.

use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use md5::Digest;
use rstest::rstest;
use tarn_objects::files::{INLINE_MAX, Sums, Taken};

use crate::files::{MD5, Place, body, feed, file};

const ALL: Sums = Sums { md5: true, crc32: true, crc32c: true, crc64nvme: true, sha1: true, sha256: true };

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_size_comes_back_as_it_came(
    #[values(0, 1, INLINE_MAX - 1, INLINE_MAX, INLINE_MAX + 1, 262_144, 262_145, 1_048_576, 6_000_001)] size: usize,
    #[values(1000, 65_536, 3_000_000)] piece: usize,
) {
    let place = Place::new();
    let sent = body(size);
    let received = feed(place.files.intake(ALL), &sent, piece).await;
    assert_eq!(received.size, size as u64);
    assert_eq!(received.md5, Some(md5::Md5::digest(&sent).into()));
    assert_eq!(received.sha1, Some(sha1::Sha1::digest(&sent).into()));
    assert_eq!(received.sha256, Some(sha2::Sha256::digest(&sent).into()));
    let crc = |algorithm| crc_fast::checksum(algorithm, &sent);
    assert_eq!(received.crc32.map(u32::from_be_bytes), Some(crc(crc_fast::CrcAlgorithm::Crc32IsoHdlc) as u32));
    assert_eq!(received.crc32c.map(u32::from_be_bytes), Some(crc(crc_fast::CrcAlgorithm::Crc32Iscsi) as u32));
    assert_eq!(received.crc64nvme.map(u64::from_be_bytes), Some(crc(crc_fast::CrcAlgorithm::Crc64Nvme)));
    match received.body {
        Taken::Inline(bytes) => {
            assert!(size <= INLINE_MAX && bytes == sent);
            assert!(place.names().is_empty());
        }
        Taken::File(pending) => {
            assert!(size > INLINE_MAX);
            assert_eq!(place.names(), [pending.id().as_str()]);
            assert!(place.get(pending.id(), 0, size as u64).await == sent);
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_file_is_made_of_any_size_when_it_must_be(#[values(0, 1, INLINE_MAX)] size: usize) {
    let place = Place::new();
    let received = feed(place.files.intake_file(MD5), &body(size), 999).await;
    assert_eq!((received.size, received.md5), (size as u64, Some(md5::Md5::digest(body(size)).into())));
    assert_eq!(received.sha256, None);
    let pending = file(received);
    assert_eq!(place.get(pending.id(), 0, size as u64).await, body(size));
}

#[tokio::test]
async fn what_is_not_finished_or_not_kept_leaves_nothing() {
    let place = Place::new();
    for size in [1, INLINE_MAX + 1, 3 << 20] {
        let mut intake = place.files.intake(MD5);
        intake.push(Bytes::from(body(size))).await.unwrap();
        drop(intake);
    }
    drop(place.put(&body(100_000)).await);
    place.settle(0).await;
    let kept = place.put(&body(100_000)).await;
    kept.keep();
    drop(place.put(&body(10)).await);
    place.settle(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_do_not_mix() {
    let place = Place::new();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40_usize {
        let files = place.files.clone();
        tasks.spawn(async move {
            let sent = body(700_000 + number * 17_777)[number..].to_vec();
            let received = feed(files.intake(MD5), &sent, 10_000 + number * 1000).await;
            assert_eq!(received.md5, Some(md5::Md5::digest(&sent).into()));
            (sent, file(received))
        });
    }
    let mut kept = 0;
    while let Some(task) = tasks.join_next().await {
        let (sent, pending) = task.unwrap();
        assert!(place.get(pending.id(), 0, sent.len() as u64).await == sent);
        pending.keep();
        kept += 1;
    }
    assert_eq!((kept, place.names().len()), (40, 40));
}

#[tokio::test]
async fn nobody_else_may_look() {
    let place = Place::new();
    let pending = place.put(&body(20)).await;
    let root = place.dir.path().join("objects");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&root), 0o700);
    let path = place.path(pending.id());
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
}
