//! The sweep removes what no row names, and nothing else.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use tarn_model::Time;
use tarn_model::ids::FileId;

use crate::files::{Place, body};

/// After everything that these tests do.
const LATE: Time = Time::from_micros(i64::MAX / 2);
const MINUTE: Duration = Duration::from_secs(60);

async fn keep(place: &Place) -> FileId {
    let pending = place.put(&body(10)).await;
    let id = pending.id().clone();
    pending.keep();
    id
}

#[tokio::test]
async fn only_orphans_go() {
    let place = Place::new();
    let mut referenced = HashSet::new();
    for number in 0..700 {
        let id = keep(&place).await;
        if number % 7 != 0 {
            referenced.insert(id);
        }
    }
    let in_flight = place.put(&body(10)).await;
    let foreign = place.path(in_flight.id()).with_file_name("README");
    std::fs::write(&foreign, "not ours").unwrap();
    let known = |batch: Vec<FileId>| {
        assert!(batch.len() <= 500 && !batch.contains(in_flight.id()));
        std::future::ready(Ok::<_, io::Error>(batch.into_iter().filter(|file| referenced.contains(file)).collect()))
    };
    let swept = place.files.sweep(MINUTE, LATE, known).await.unwrap();
    assert_eq!((swept.seen, swept.removed), (701, 100));
    let again = place.files.sweep(MINUTE, LATE, known).await.unwrap();
    assert_eq!((again.seen, again.removed), (601, 0));
    let left: HashSet<String> = place.names().into_iter().collect();
    assert!(referenced.iter().all(|file| left.contains(file.as_str())));
    assert!(left.contains(in_flight.id().as_str()) && foreign.exists());
}

#[tokio::test]
async fn the_young_stay_and_a_link_is_as_young_as_itself() {
    let place = Place::new();
    let id = keep(&place).await;
    let path = place.path(&id);
    let changed = std::fs::metadata(&path).unwrap();
    let changed = Time::from_micros(changed.ctime() * 1_000_000 + changed.ctime_nsec() / 1000);
    let nothing = |_| std::future::ready(Ok::<_, io::Error>(HashSet::new()));
    let sweep = async |now: Time| place.files.sweep(MINUTE, now, nothing).await.unwrap().removed;
    assert_eq!(sweep(changed.after(MINUTE / 2)).await, 0);
    // The bytes of a link may be years old.
    std::fs::File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(sweep(changed.after(MINUTE / 2)).await, 0);
    assert_eq!(sweep(LATE).await, 1);
    place.settle(0).await;
}

#[tokio::test]
async fn a_failure_to_ask_removes_nothing() {
    let place = Place::new();
    keep(&place).await;
    let failing = |_| std::future::ready(Err::<HashSet<FileId>, _>(io::Error::other("no database")));
    assert!(place.files.sweep(MINUTE, LATE, failing).await.is_err());
    assert_eq!(place.names().len(), 1);
}
