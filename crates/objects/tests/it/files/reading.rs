//! Any range of a file can be read, and missing bytes are an error instead of an end.

use std::io::ErrorKind;

use futures::{StreamExt, TryStreamExt};

use crate::files::{TestFiles, body};

/// Ranges of a file are exact.
#[tokio::test]
async fn file_ranges_are_exact() {
    let test = TestFiles::new();
    let sent = body(1_500_000);
    let pending = test.put(&sent).await;
    for (offset, length) in
        [(0, 0), (0, 1), (1, 262_144), (262_143, 2), (262_144, 524_288), (1_499_999, 1), (7, 1_499_000)]
    {
        let reading = test.files.read(pending.id(), offset as u64, length as u64);
        assert_eq!(reading.remaining(), length as u64);
        assert!(
            test.get(pending.id(), offset as u64, length as u64).await == sent[offset..offset + length],
            "{offset}"
        );
    }
}

/// A reader can be the body of a response.
#[test]
fn reader_can_be_response_body() {
    fn check<T: futures::Stream + Send + Sync + Unpin + 'static>() {}
    check::<tarn_objects::files::FileReader>();
}

/// Bytes that are not cached come from the disk.
#[tokio::test]
async fn uncached_bytes_come_from_disk() {
    let test = TestFiles::new();
    let sent = body(5_000_000);
    let pending = test.put(&sent).await;
    let path = test.path(pending.id());
    for _ in 0..3 {
        let file = std::fs::File::open(&path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(test.get(pending.id(), 3, 4_999_997).await == sent[3..]);
    }
}

/// An open file can be read after its removal.
#[tokio::test]
async fn open_file_outlives_removal() {
    let test = TestFiles::new();
    let sent = body(3_000_000);
    let pending = test.put(&sent).await;
    let id = pending.id().clone();
    pending.keep();
    let mut reading = test.files.read(&id, 0, 3_000_000);
    reading.wait_until_open().await.unwrap();
    test.files.remove(vec![id.clone()]).await;
    assert!(test.names().is_empty());
    let pieces: Vec<_> = reading.try_collect().await.unwrap();
    assert!(pieces.concat() == sent);
    assert_eq!(test.files.read(&id, 0, 1).wait_until_open().await.unwrap_err().kind(), ErrorKind::NotFound);
    test.files.remove(vec![id]).await;
}

/// A file that is too short is an error.
#[tokio::test]
async fn short_file_is_an_error() {
    let test = TestFiles::new();
    let pending = test.put(&body(100)).await;
    let mut reading = test.files.read(pending.id(), 50, 100);
    assert_eq!(reading.next().await.unwrap().unwrap(), body(100)[50..]);
    assert_eq!(reading.next().await.unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert!(reading.next().await.is_none());
}
