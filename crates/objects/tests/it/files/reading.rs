//! Files are read from anywhere to anywhere, and what is missing is an error rather than an end.

use std::io::ErrorKind;

use futures::{StreamExt, TryStreamExt};

use crate::files::{Place, body};

#[tokio::test]
async fn ranges_are_exact() {
    let place = Place::new();
    let sent = body(1_500_000);
    let pending = place.put(&sent).await;
    for (offset, length) in
        [(0, 0), (0, 1), (1, 262_144), (262_143, 2), (262_144, 524_288), (1_499_999, 1), (7, 1_499_000)]
    {
        let reading = place.files.read(pending.id(), offset as u64, length as u64);
        assert_eq!(reading.remaining(), length as u64);
        assert!(
            place.get(pending.id(), offset as u64, length as u64).await == sent[offset..offset + length],
            "{offset}"
        );
    }
}

#[test]
fn a_reading_can_be_the_body_of_an_answer() {
    fn check<T: futures::Stream + Send + Sync + Unpin + 'static>() {}
    check::<tarn_objects::files::Reading>();
}

#[tokio::test]
async fn what_is_not_in_memory_comes_from_the_disk() {
    let place = Place::new();
    let sent = body(5_000_000);
    let pending = place.put(&sent).await;
    let path = place.path(pending.id());
    for _ in 0..3 {
        let file = std::fs::File::open(&path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(place.get(pending.id(), 3, 4_999_997).await == sent[3..]);
    }
}

#[tokio::test]
async fn a_file_that_is_open_outlives_its_removal() {
    let place = Place::new();
    let sent = body(3_000_000);
    let pending = place.put(&sent).await;
    let id = pending.id().clone();
    pending.keep();
    let mut reading = place.files.read(&id, 0, 3_000_000);
    reading.opened().await.unwrap();
    place.files.remove(vec![id.clone()]).await;
    assert!(place.names().is_empty());
    let pieces: Vec<_> = reading.try_collect().await.unwrap();
    assert!(pieces.concat() == sent);
    assert_eq!(place.files.read(&id, 0, 1).opened().await.unwrap_err().kind(), ErrorKind::NotFound);
    place.files.remove(vec![id]).await;
}

#[tokio::test]
async fn a_file_that_is_too_short_is_an_error() {
    let place = Place::new();
    let pending = place.put(&body(100)).await;
    let mut reading = place.files.read(pending.id(), 50, 100);
    assert_eq!(reading.next().await.unwrap().unwrap(), body(100)[50..]);
    assert_eq!(reading.next().await.unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert!(reading.next().await.is_none());
}
