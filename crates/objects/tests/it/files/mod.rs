//! The data files, as the rest of the crate uses them. Some tests check the directory itself for what must or must not
//! be left.

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
use tarn_objects::files::{Files, Intake, Pending, Received, ReceivedBody, Sums};
use tarn_store::testing::SeededIds;

/// A temporary directory, and the files in it.
struct TestFiles {
    dir: tempfile::TempDir,
    files: Files,
}

impl TestFiles {
    fn new() -> TestFiles {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(&dir.path().join("objects"), 0, Arc::new(SeededIds::new(5))).unwrap();
        TestFiles { dir, files }
    }

    /// Returns the path of a file.
    fn path(&self, file: &FileId) -> PathBuf {
        self.dir.path().join("objects").join(&file.as_str()[2..4]).join(file.as_str())
    }

    /// Returns the names of the files on disk.
    fn names(&self) -> Vec<String> {
        names(&self.dir.path().join("objects"))
    }

    /// Waits until this many files are left: dropped files are removed by a thread.
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
    let shards = list(root).into_iter().filter(|entry| entry.path().is_dir());
    let files = shards.flat_map(|shard| list(&shard.path()));
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

/// Returns bytes that differ everywhere in the body.
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
        ReceivedBody::File(pending) => pending,
        ReceivedBody::Inline(bytes) => panic!("{} bytes are not a file", bytes.len()),
    }
}
