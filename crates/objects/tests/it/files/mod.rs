//! The data files, as the rest of the crate uses them. The directory is looked at from outside, where something must be left
//! or must not.

mod copies;
mod full;
mod intake;
mod reading;
mod sweep;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use tarn_model::ids::FileId;
use tarn_objects::files::{Files, Intake, Pending, Received, Sums, Taken};
use tarn_store::testing::SeededIds;

/// A directory that is gone after the test, and the files in it.
struct Place {
    dir: tempfile::TempDir,
    files: Files,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(&dir.path().join("objects"), 0, Arc::new(SeededIds::new(5))).unwrap();
        Place { dir, files }
    }

    /// Where a file lies.
    fn path(&self, file: &FileId) -> PathBuf {
        self.dir.path().join("objects").join(&file.as_str()[2..4]).join(file.as_str())
    }

    /// The names of the files that lie on the disk.
    fn names(&self) -> Vec<String> {
        names(&self.dir.path().join("objects"))
    }

    /// Waits until so many files are left: what is dropped is removed by a thread, soon.
    async fn settle(&self, count: usize) {
        settle(&self.dir.path().join("objects"), count).await;
    }

    async fn put(&self, body: &[u8]) -> Pending {
        file(feed(self.files.intake_file(MD5), body, 100_000).await)
    }

    async fn link(&self, file: &FileId) -> Pending {
        self.files.link_all(vec![file.clone()]).await.unwrap().pop().unwrap()
    }

    async fn get(&self, file: &FileId, offset: u64, length: u64) -> Vec<u8> {
        let pieces: Vec<Bytes> = self.files.read(file, offset, length).try_collect().await.unwrap();
        pieces.concat()
    }
}

const MD5: Sums = Sums { md5: true, crc32: false, crc32c: false, crc64nvme: false, sha1: false, sha256: false };

fn names(root: &Path) -> Vec<String> {
    let list = |path: &Path| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap()).collect::<Vec<_>>();
    let files = list(root).into_iter().flat_map(|shard| list(&shard.path()));
    files.map(|file| file.file_name().into_string().unwrap()).collect()
}

async fn settle(root: &Path, count: usize) {
    for _ in 0..12_000 {
        if names(root).len() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("there are still {:?}", names(root));
}

/// Bytes that are the same nowhere in the body.
fn body(length: usize) -> Vec<u8> {
    (0..length.div_ceil(4) as u32).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).take(length).collect()
}

async fn feed(mut intake: Intake, body: &[u8], piece: usize) -> Received {
    for piece in body.chunks(piece) {
        intake.push(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    intake.finish().await.unwrap()
}

fn file(received: Received) -> Pending {
    match received.body {
        Taken::File(pending) => pending,
        Taken::Inline(bytes) => panic!("{} bytes are not a file", bytes.len()),
    }
}
