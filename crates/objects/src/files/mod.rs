//! The data files: bytes that are too large for a row. They are on disk before a caller learns that they are stored.
//!
//! A file has its final path from the start, and its name says nothing about its content: the rows of the store decide
//! what exists. A file that no row refers to is an orphan, which the sweep removes, so a crash at any moment leaves
//! nothing else behind. This module must not know the store, buckets or keys. Start reading at [`Files`]. Bytes come in
//! through `writing`, which feeds `sums`, and go out through `reader`.

mod backup_hold;
mod buffers;
mod copies;
mod directory;
mod pending;
mod reader;
mod sums;
mod sweep;
mod sync_rounds;
mod writing;

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_model::ids::FileId;
use tarn_model::{Ids, Time};
use tokio::sync::Notify;

use backup_hold::Removal;
pub use backup_hold::{BackupHold, HoldAttempt, HoldRequest, RENEW_INTERVAL};
use buffers::Buffers;
use directory::Directory;
pub use pending::Pending;
pub use reader::FileReader;
use sums::Hashers;
pub use sums::Sums;
use sweep::LeftByBackup;
pub use sweep::Swept;
pub use writing::intake::{Intake, Received, ReceivedBody};

/// Bodies up to this size stay in memory and are stored in the row.
pub const INLINE_MAX: usize = 16 << 10;

/// How long the free space of the disk is cached.
const FREE_BYTES_MAX_AGE: Duration = Duration::from_secs(1);

/// The directory of the data files. Cheap to clone.
#[derive(Clone)]
pub struct Files(Arc<Inner>);

struct Inner {
    directory: Arc<Directory>,
    buffers: Arc<Buffers>,
    hashers: Hashers,
    /// The last known free bytes, and when they were read.
    recent_free: Mutex<Option<(Time, u64)>>,
    /// The files that were left to the sweep, because a backup needs them, and the signal that there are some.
    left: LeftByBackup,
    left_to_sweep: Notify,
}

impl Files {
    /// Opens the directory, and creates it if it is missing. Only one user may access it. Files do not grow into the
    /// last `reserve_bytes` of the disk.
    pub fn open(dir: &Path, reserve_bytes: u64, ids: Arc<dyn Ids>) -> io::Result<Files> {
        let directory = Arc::new(Directory::open(dir, reserve_bytes, ids)?);
        let (buffers, hashers, recent_free) = (Arc::default(), Hashers::start()?, Mutex::default());
        let (left, left_to_sweep) = (LeftByBackup::default(), Notify::new());
        Ok(Files(Arc::new(Inner { directory, buffers, hashers, recent_free, left, left_to_sweep })))
    }

    /// Receives a body. A small body stays in memory, a larger one becomes a file while it arrives.
    pub fn intake(&self, wanted: Sums) -> Intake {
        Intake::new(self, wanted, false)
    }

    /// Receives a body that becomes a file regardless of its size.
    pub fn intake_file(&self, wanted: Sums) -> Intake {
        Intake::new(self, wanted, true)
    }

    /// Reads `length` bytes starting at `offset`. A shorter file is an error of the stream.
    pub fn read(&self, file: &FileId, offset: u64, length: u64) -> FileReader {
        FileReader::new(self, file, offset, length)
    }

    /// Creates another name for each of the files, on disk. Neither name needs the other.
    pub async fn link_all(&self, from: Vec<FileId>) -> io::Result<Vec<Pending>> {
        self.run_blocking(move |directory| copies::link_all(directory, &from)).await
    }

    /// Removes files whose rows were removed and committed. Files that cannot be removed, and those that a backup may
    /// need, are left to the sweep.
    pub async fn remove(&self, files: Vec<FileId>) {
        if files.is_empty() {
            return;
        }
        let remove = move |directory: &Arc<Directory>| {
            let Removal::Allowed { _lock } = directory.begin_removal()? else { return Ok(files) };
            for file in files {
                if let Err(error) = directory.remove(&file) {
                    tracing::warn!(%file, %error, "a file is left to the sweep");
                }
            }
            Ok(Vec::new())
        };
        match self.run_blocking(remove).await {
            Ok(held) if held.is_empty() => {}
            Ok(held) => {
                self.0.left.add(held);
                self.0.left_to_sweep.notify_one();
            }
            Err(error) => tracing::warn!(%error, "files are left to the sweep"),
        }
    }

    /// Waits until files are left to the sweep because a backup needs them.
    pub async fn wait_until_left(&self) {
        self.0.left_to_sweep.notified().await;
    }

    /// Returns the bytes that an unprivileged user could still write.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.0.directory.free_bytes()
    }

    /// Returns the size of the filesystem that holds the files.
    pub fn disk_bytes(&self) -> io::Result<u64> {
        self.0.directory.disk_bytes()
    }

    /// Like [`Files::free_bytes`], but up to a second old, for frequent callers that need little space.
    pub fn recent_free_bytes(&self, now: Time) -> io::Result<u64> {
        let mut recent = self.0.recent_free.lock();
        match *recent {
            Some((when, free)) if when <= now && now < when.after(FREE_BYTES_MAX_AGE) => Ok(free),
            _ => {
                let free = self.free_bytes()?;
                *recent = Some((now, free));
                Ok(free)
            }
        }
    }

    /// Visits every file in batches. `referenced` returns which of them have a row. The others are removed, unless they
    /// are in flight in this process or have changed within `grace` before `now`. Those that [`Files::remove`] left
    /// because of a backup come first, and are removed however young they are.
    pub async fn sweep<F, Fut, E>(&self, grace: Duration, now: Time, referenced: F) -> Result<Swept, E>
    where
        F: FnMut(Vec<FileId>) -> Fut,
        Fut: Future<Output = Result<HashSet<FileId>, E>>,
        E: From<io::Error>,
    {
        sweep::sweep(&self.0.directory, &self.0.left, grace, now, referenced).await
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Directory>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let directory = self.0.directory.clone();
        tokio::task::spawn_blocking(move || work(&directory)).await.map_err(io::Error::other).flatten()
    }
}
