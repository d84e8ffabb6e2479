//! The data files: bytes that are too large for a row, on disk before anyone hears that they are.
//!
//! A file has its final place and name from the start, and says nothing of what it is: the store's rows decide what exists.
//! A file that no row names is an orphan, which the sweep removes, so a crash at any moment leaves nothing else behind. This
//! module must not know the store, buckets or keys. Start reading at [`Files`]; bytes come in by `intake`, which feeds
//! `writer` and `sums`, and go out by `reading`.

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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tarn_model::ids::FileId;
use tarn_model::{Ids, Time};

use buffers::Buffers;
use directory::Directory;
pub use pending::Pending;
pub use reader::Reading;
use sums::Hashers;
pub use sums::Sums;
pub use sweep::Swept;
pub use writing::intake::{Intake, Received, Taken};

/// Bodies up to this size stay in memory and go into the row.
pub const INLINE_MAX: usize = 16 << 10;

/// For how long the free space of the disk is remembered.
const LATELY: Duration = Duration::from_secs(1);

/// The directory of the data files. Cheap to clone.
#[derive(Clone)]
pub struct Files(Arc<Inner>);

struct Inner {
    directory: Arc<Directory>,
    buffers: Arc<Buffers>,
    hashers: Hashers,
    /// How many bytes were free, and when.
    seen_free: Mutex<Option<(Time, u64)>>,
}

impl Files {
    /// Opens the directory, and makes it if it is missing. Only one user may enter it.
    /// Files do not grow into the last `reserve_bytes` of the disk.
    pub fn open(dir: &Path, reserve_bytes: u64, ids: Arc<dyn Ids>) -> io::Result<Files> {
        let directory = Arc::new(Directory::open(dir, reserve_bytes, ids)?);
        let (buffers, hashers, seen_free) = (Arc::default(), Hashers::start()?, Mutex::default());
        Ok(Files(Arc::new(Inner { directory, buffers, hashers, seen_free })))
    }

    /// Takes a body in; a small one stays in memory, a larger one becomes a file while it arrives.
    pub fn intake(&self, wanted: Sums) -> Intake {
        Intake::new(self, wanted, false)
    }

    /// Takes a body in that becomes a file whatever its size.
    pub fn intake_file(&self, wanted: Sums) -> Intake {
        Intake::new(self, wanted, true)
    }

    /// Reads `length` bytes from `offset` on. That the file has fewer is an error of the stream.
    pub fn read(&self, file: &FileId, offset: u64, length: u64) -> Reading {
        Reading::new(self, file, offset, length)
    }

    /// Gives the bytes of each of the files another name, on disk. Neither name needs the other.
    pub async fn link_all(&self, from: Vec<FileId>) -> io::Result<Vec<Pending>> {
        self.blocking(move |directory| copies::link_all(directory, &from)).await
    }

    /// Removes files whose rows are gone, after that was committed. What cannot be removed is left to the sweep.
    pub async fn remove(&self, files: Vec<FileId>) {
        let remove = move |directory: &Arc<Directory>| {
            for file in files {
                if let Err(error) = directory.remove(&file) {
                    tracing::warn!(%file, %error, "a file is left to the sweep");
                }
            }
            Ok(())
        };
        if let Err(error) = self.blocking(remove).await {
            tracing::warn!(%error, "files are left to the sweep");
        }
    }

    /// How many bytes a user without privileges could still write.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.0.directory.free_bytes()
    }

    /// As [`Files::free_bytes`], but up to a second old: for those who ask often and take little.
    pub fn lately_free_bytes(&self, now: Time) -> io::Result<u64> {
        let mut seen = self.0.seen_free.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen {
            Some((when, free)) if when <= now && now < when.after(LATELY) => Ok(free),
            _ => {
                let free = self.free_bytes()?;
                *seen = Some((now, free));
                Ok(free)
            }
        }
    }

    /// Visits every file in batches. `referenced` says which of them have a row; the others are removed, unless they are in
    /// flight in this process or have changed within `grace` before `now`.
    pub async fn sweep<F, Fut, E>(&self, grace: Duration, now: Time, referenced: F) -> Result<Swept, E>
    where
        F: FnMut(Vec<FileId>) -> Fut,
        Fut: Future<Output = Result<HashSet<FileId>, E>>,
        E: From<io::Error>,
    {
        sweep::sweep(&self.0.directory, grace, now, referenced).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Directory>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let directory = self.0.directory.clone();
        tokio::task::spawn_blocking(move || work(&directory)).await.map_err(io::Error::other).flatten()
    }
}
