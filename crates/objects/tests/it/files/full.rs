//! A full disk is reported as such, and leaves nothing behind.

use std::ffi::CStr;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tarn_objects::files::Files;
use tarn_store::testing::SeededIds;

use crate::files::{MD5, body, feed, file, settle};

/// A small file system in memory, unmounted at the end of the test.
struct Small(tempfile::TempDir);

impl Small {
    fn mount(size: &CStr) -> Option<Small> {
        let dir = tempfile::tempdir().unwrap();
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        match mount("tarn-test", dir.path(), "tmpfs", flags, Some(size)) {
            Ok(()) => Some(Small(dir)),
            Err(error) => {
                println!("skipped: mounting needs root ({error})");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Detached, so that a file that is still open after a failed test cannot block it.
        if let Err(error) = unmount(self.path(), UnmountFlags::DETACH) {
            eprintln!("{} is still mounted: {error}", self.path().display());
        }
    }
}

/// A full disk refuses a body, leaves nothing behind and recovers.
#[tokio::test]
async fn full_disk_refuses_and_recovers() {
    let Some(small) = Small::mount(c"size=4m") else { return };
    let root = small.path().join("objects");
    let files = Files::open(&root, 0, Arc::new(SeededIds::new(5))).unwrap();
    let free = files.free_bytes().unwrap();
    assert!(free > 3 << 20 && free <= 4 << 20, "{free}");
    let mut intake = files.intake(MD5);
    let refused = loop {
        // Once the disk is full, a piece or the end is refused.
        if let Err(error) = intake.push(Bytes::from(body(100_000))).await {
            break error;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    assert!(intake.push(Bytes::from(body(300_000))).await.is_err());
    assert!(intake.finish().await.is_err());
    settle(&root, 0).await;
    // A body that fails only at its end.
    let mut intake = files.intake(MD5);
    let first = file(feed(files.intake(MD5), &body(3 << 20), 65_536).await);
    intake.push(Bytes::from(body(250_000))).await.unwrap();
    let second = file(feed(files.intake(MD5), &body(900_000), 65_536).await);
    assert_eq!(intake.finish().await.unwrap_err().kind(), ErrorKind::StorageFull);
    settle(&root, 2).await;
    drop((first, second));
    settle(&root, 0).await;
    feed(files.intake(MD5), &body(3 << 20), 65_536).await;
    settle(&root, 0).await;
}

/// A file does not grow into the reserve: the announced size fits, but other files are written at the same time.
#[tokio::test]
async fn file_does_not_grow_into_reserve() {
    let Some(small) = Small::mount(c"size=24m") else { return };
    let root = small.path().join("objects");
    let files = Files::open(&root, 8 << 20, Arc::new(SeededIds::new(5))).unwrap();
    let first = file(feed(files.intake(MD5), &body(9 << 20), 65_536).await);
    let mut intake = files.intake(MD5);
    let refused = loop {
        if let Err(error) = intake.push(Bytes::from(body(100_000))).await {
            break error;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    assert!(files.free_bytes().unwrap() > 2 << 20, "it was refused before the disk was full");
    drop(intake);
    settle(&root, 1).await;
    // A link needs no space and is not refused.
    drop(files.link_all(vec![first.id().clone()]).await.unwrap());
    drop(first);
    settle(&root, 0).await;
}
