//! The sweep removes files that no row refers to, and nothing else.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use tarn_model::Time;
use tarn_model::ids::FileId;
use tarn_objects::files::{HoldAttempt, HoldRequest};

use crate::files::{TestFiles, body};

/// A time after everything that these tests do.
const LATE: Time = Time::from_micros(i64::MAX / 2);
const MINUTE: Duration = Duration::from_secs(60);

async fn keep(test: &TestFiles) -> FileId {
    let pending = test.put(&body(10)).await;
    let id = pending.id().clone();
    pending.keep();
    id
}

/// The sweep removes only orphans.
#[tokio::test]
async fn only_orphans_are_removed() {
    let test = TestFiles::new();
    let mut referenced = HashSet::new();
    for number in 0..700 {
        let id = keep(&test).await;
        if number % 7 != 0 {
            referenced.insert(id);
        }
    }
    let in_flight = test.put(&body(10)).await;
    let foreign = test.path(in_flight.id()).with_file_name("README");
    std::fs::write(&foreign, "not ours").unwrap();
    let known = |batch: Vec<FileId>| {
        assert!(batch.len() <= 500 && !batch.contains(in_flight.id()));
        std::future::ready(Ok::<_, io::Error>(batch.into_iter().filter(|file| referenced.contains(file)).collect()))
    };
    let swept = test.files.sweep(MINUTE, LATE, known).await.unwrap();
    assert_eq!((swept.seen, swept.removed), (701, 100));
    let again = test.files.sweep(MINUTE, LATE, known).await.unwrap();
    assert_eq!((again.seen, again.removed), (601, 0));
    let left: HashSet<String> = test.names().into_iter().collect();
    assert!(referenced.iter().all(|file| left.contains(file.as_str())));
    assert!(left.contains(in_flight.id().as_str()) && foreign.exists());
}

/// Young files stay, and a link is as old as itself, not as its bytes.
#[tokio::test]
async fn young_files_stay() {
    let test = TestFiles::new();
    let id = keep(&test).await;
    let path = test.path(&id);
    let changed = std::fs::metadata(&path).unwrap();
    let changed = Time::from_micros(changed.ctime() * 1_000_000 + changed.ctime_nsec() / 1000);
    let nothing = |_| std::future::ready(Ok::<_, io::Error>(HashSet::new()));
    let sweep = async |now: Time| test.files.sweep(MINUTE, now, nothing).await.unwrap().removed;
    assert_eq!(sweep(changed.after(MINUTE / 2)).await, 0);
    // The bytes of a link may be years old.
    std::fs::File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(sweep(changed.after(MINUTE / 2)).await, 0);
    assert_eq!(sweep(LATE).await, 1);
    test.settle(0).await;
}

/// What a process deletes during a backup it removes after the backup, although other processes write files, too. A
/// file that has a row again, or is read, is kept.
#[tokio::test]
async fn files_that_a_backup_needed_are_removed_after_it() {
    let test = TestFiles::new();
    let (deleted, read, foreign) = (keep(&test).await, keep(&test).await, keep(&test).await);
    let directory = test.path(&deleted);
    let request = HoldRequest::open(directory.parent().unwrap().parent().unwrap()).unwrap();
    let HoldAttempt::Taken(hold) = request.try_take().unwrap() else { panic!("nothing else has the hold") };
    test.files.remove(vec![deleted.clone(), read.clone()]).await;
    let now = Time::from_micros(std::fs::metadata(test.path(&deleted)).unwrap().ctime() * 1_000_000);
    let in_use = |batch: Vec<FileId>| {
        std::future::ready(Ok::<_, io::Error>(batch.into_iter().filter(|file| *file == read).collect()))
    };
    let swept = test.files.sweep(MINUTE, now, in_use).await.unwrap();
    assert!(swept.was_held && test.names().len() == 3, "{swept:?}");
    // The hard link of a backup makes a file young again.
    std::fs::hard_link(test.path(&deleted), test.path(&deleted).with_extension("backup")).unwrap();
    drop(hold);
    let swept = test.files.sweep(MINUTE, now, in_use).await.unwrap();
    assert!(!swept.was_held && swept.removed == 1 && !test.path(&deleted).exists(), "{swept:?}");
    assert!(test.path(&foreign).exists() && test.path(&read).exists(), "another process may need a young file");
    let nothing = |_| std::future::ready(Ok::<_, io::Error>(HashSet::new()));
    assert_eq!(test.files.sweep(MINUTE, now, nothing).await.unwrap().removed, 1);
    assert!(!test.path(&read).exists() && test.path(&foreign).exists());
}

/// A failed lookup of rows removes nothing.
#[tokio::test]
async fn failed_lookup_removes_nothing() {
    let test = TestFiles::new();
    keep(&test).await;
    let failing = |_| std::future::ready(Err::<HashSet<FileId>, _>(io::Error::other("no database")));
    assert!(test.files.sweep(MINUTE, LATE, failing).await.is_err());
    assert_eq!(test.names().len(), 1);
}
