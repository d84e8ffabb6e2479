//! Bodies are received whole, with their sums, or not at all.

use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use md5::Digest;
use rstest::rstest;
use tarn_objects::files::{INLINE_MAX, ReceivedBody, Sums};

use crate::files::{MD5, TestFiles, body, feed, file};

const ALL: Sums = Sums { md5: true, crc32: true, crc32c: true, crc64nvme: true, sha1: true, sha256: true };

/// Bodies of every size are read as they were received.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_size_round_trips(
    #[values(0, 1, INLINE_MAX - 1, INLINE_MAX, INLINE_MAX + 1, 262_144, 262_145, 1_048_576, 6_000_001)] size: usize,
    #[values(1000, 65_536, 3_000_000)] piece: usize,
) {
    let test = TestFiles::new();
    let sent = body(size);
    let received = feed(test.files.intake(ALL), &sent, piece).await;
    assert_eq!(received.size, size as u64);
    assert_eq!(received.md5, Some(md5::Md5::digest(&sent).into()));
    assert_eq!(received.sha1, Some(sha1::Sha1::digest(&sent).into()));
    assert_eq!(received.sha256, Some(sha2::Sha256::digest(&sent).into()));
    let crc = |algorithm| crc_fast::checksum(algorithm, &sent);
    assert_eq!(received.crc32.map(u32::from_be_bytes), Some(crc(crc_fast::CrcAlgorithm::Crc32IsoHdlc) as u32));
    assert_eq!(received.crc32c.map(u32::from_be_bytes), Some(crc(crc_fast::CrcAlgorithm::Crc32Iscsi) as u32));
    assert_eq!(received.crc64nvme.map(u64::from_be_bytes), Some(crc(crc_fast::CrcAlgorithm::Crc64Nvme)));
    match received.body {
        ReceivedBody::Inline(bytes) => {
            assert!(size <= INLINE_MAX && bytes == sent);
            assert!(test.names().is_empty());
        }
        ReceivedBody::File(pending) => {
            assert!(size > INLINE_MAX);
            assert_eq!(test.names(), [pending.id().as_str()]);
            assert!(test.get(pending.id(), 0, size as u64).await == sent);
        }
    }
}

/// A body of any size becomes a file when it must.
#[rstest]
#[tokio::test]
async fn file_is_created_for_any_size(#[values(0, 1, INLINE_MAX)] size: usize) {
    let test = TestFiles::new();
    let received = feed(test.files.intake_file(MD5), &body(size), 999).await;
    assert_eq!((received.size, received.md5), (size as u64, Some(md5::Md5::digest(body(size)).into())));
    assert_eq!(received.sha256, None);
    let pending = file(received);
    assert_eq!(test.get(pending.id(), 0, size as u64).await, body(size));
}

/// A body that is not finished or not kept leaves nothing behind.
#[tokio::test]
async fn unfinished_body_leaves_nothing() {
    let test = TestFiles::new();
    for size in [1, INLINE_MAX + 1, 3 << 20] {
        let mut intake = test.files.intake(MD5);
        intake.push(Bytes::from(body(size))).await.unwrap();
        drop(intake);
    }
    drop(test.put(&body(100_000)).await);
    test.settle(0).await;
    let kept = test.put(&body(100_000)).await;
    kept.keep();
    drop(test.put(&body(10)).await);
    test.settle(1).await;
}

/// Concurrent bodies do not mix.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_bodies_do_not_mix() {
    let test = TestFiles::new();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40_usize {
        let files = test.files.clone();
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
        assert!(test.get(pending.id(), 0, sent.len() as u64).await == sent);
        pending.keep();
        kept += 1;
    }
    assert_eq!((kept, test.names().len()), (40, 40));
}

/// Only the owner may access the files.
#[tokio::test]
async fn files_are_private() {
    let test = TestFiles::new();
    let pending = test.put(&body(20)).await;
    let root = test.dir.path().join("objects");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&root), 0o700);
    let path = test.path(pending.id());
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
}
