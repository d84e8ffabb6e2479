//! A bucket of object storage, or a part of one, with backups.
//!
//! ```text
//! PREFIX/tarn-backups             marks the place
//! PREFIX/tarn-backups.lock        is there while a process adds or removes backups
//! PREFIX/objects/xx/f-…           contents of objects, which the backups share; never changed
//! PREFIX/20261119T041500Z/…       a backup: the database, the list of its objects, … and, last, manifest.json
//! PREFIX/20261119T041500Z.partial/…   notes about a backup that is being made or removed, or that was interrupted
//! PREFIX/reread.next              a note for the next backup
//! ```
//!
//! A backup is complete when its manifest is there. The files are made in a local directory and sent from there.

mod errors;
mod holder;
mod lock;
mod medium;
mod objects;
mod source;
mod transport;
mod upload;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use object_store::path::Path as Key;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::location::BucketAddress;
use super::manifest::VOLUME;
use super::medium::Medium as _;
use super::scratch::Scratch;
use super::{MARK, PARTIAL, content_key};
use crate::backup::parts::contents::parse_list;
use crate::failure::{Failure, Result};
use holder::Holder;
use lock::{LEASE, LOCK, Lock};
use objects::Objects;
use source::{Layout, Piece, Source, Unpacked};
use upload::Uploads;

/// The end of the name of the object with the layout of a volume.
const LAYOUT: &str = ".layout";

/// A bucket with backups.
pub(super) struct Bucket {
    objects: Objects,
    uploads: Uploads,
    lock: Option<Lock>,
    /// Where local files may be.
    local: PathBuf,
    /// The backup that is being made: its name, its local directory, and the number of its uploads.
    making: Mutex<Option<(String, Scratch)>>,
    noted: AtomicU64,
}

/// A note about an upload that only its id ends.
#[derive(Serialize, Deserialize)]
struct UploadNote {
    key: String,
    id: String,
}

impl Bucket {
    /// Opens a bucket to add a backup. No other process may use it meanwhile. An empty one is prepared; one with other
    /// content is refused.
    pub(super) async fn open_for_writing(address: &BucketAddress, local: &Path) -> Result<Bucket> {
        Bucket::begin_writing(Objects::connect(address).await?, address.shown(), local).await
    }

    /// Opens a bucket to read backups.
    pub(super) async fn open_for_reading(address: &BucketAddress, local: &Path) -> Result<Bucket> {
        let objects = Objects::connect(address).await?;
        let shown = address.shown();
        let marked = objects.exists(MARK).await;
        if !marked.map_err(|e| Failure::with_cause(format!("cannot read {shown}"), e))? {
            return Err(Failure(format!("there are no backups in {shown}")));
        }
        Ok(Bucket::new(objects, None, local))
    }

    /// Opens a place in memory.
    #[cfg(test)]
    pub(super) async fn open_memory(
        memory: std::sync::Arc<object_store::memory::InMemory>,
        local: &Path,
    ) -> Result<Bucket> {
        let objects = Objects::new(memory, "bucket", "place", "memory".to_owned());
        Bucket::begin_writing(objects, "s3://bucket/place".to_owned(), local).await
    }

    async fn begin_writing(objects: Objects, shown: String, local: &Path) -> Result<Bucket> {
        let failed = |e| Failure::with_cause(format!("cannot use {shown} for backups"), e);
        let is_marked = objects.exists(MARK).await.map_err(failed)?;
        if !is_marked && !objects.is_empty_except(&[LOCK]).await.map_err(failed)? {
            return Err(Failure(format!(
                "{shown} is not empty and has no backups; give another bucket or prefix, which may be new"
            )));
        }
        let lock = Lock::take(&objects, Holder::this()).await?;
        if !is_marked {
            objects.put(MARK, b"1\n".to_vec()).await.map_err(failed)?;
        }
        Ok(Bucket::new(objects, Some(lock), local))
    }

    fn new(objects: Objects, lock: Option<Lock>, local: &Path) -> Bucket {
        let uploads = Uploads::new(&objects);
        Bucket { objects, uploads, lock, local: local.to_owned(), making: Mutex::default(), noted: AtomicU64::new(0) }
    }

    /// Fails if another process may have taken the lock.
    async fn confirm(&self) -> io::Result<()> {
        match &self.lock {
            Some(lock) => lock.confirm().await,
            None => Err(io::Error::other("the backups are open for reading")),
        }
    }

    /// Makes a call that must not happen when another process has the lock. That process waits for longer.
    async fn make_in_time<T>(&self, call: impl Future<Output = io::Result<T>> + Send) -> io::Result<T> {
        self.confirm().await?;
        let made = tokio::time::timeout(LEASE, call).await;
        made.map_err(|_| io::Error::new(ErrorKind::NotConnected, "the server did not respond in time"))?
    }

    fn file(&self, name: &str, file: &str) -> Key {
        self.objects.key(&format!("{name}/{file}"))
    }

    /// Stores a local file, and returns the MD5 of what is stored; `None` if it is not `expected`.
    async fn store(
        &self,
        key: &Key,
        source: &Source,
        expected: impl Fn(&str) -> bool + Send,
    ) -> io::Result<Option<String>> {
        let number = self.noted.fetch_add(1, Ordering::Relaxed);
        let name = self.making.lock().as_ref().map(|(name, _)| name.clone()).unwrap_or_default();
        let note = |id: String| {
            let text = serde_json::to_vec(&UploadNote { key: key.to_string(), id }).unwrap_or_default();
            let objects = self.objects.clone();
            async move { objects.put(&format!("{name}{PARTIAL}/upload-{number}"), text).await }
        };
        self.uploads.store(key, source, expected, note).await
    }

    async fn store_file(&self, name: &str, staged: &Path, file: &str) -> io::Result<()> {
        let (path, is_volume) = (staged.join(file), file.ends_with(VOLUME));
        let source = if is_volume { Source::sparse(&path)? } else { Source::whole(&path)? };
        if is_volume {
            let layout = serde_json::to_vec(&source.layout).map_err(io::Error::other)?;
            self.objects.put(&format!("{name}/{file}{LAYOUT}"), layout).await?;
        }
        self.store(&self.file(name, file), &source, |_| true).await.map(drop)
    }

    /// Reads a file of a backup as it was, with the holes of a volume.
    async fn unpack(
        &self,
        name: &str,
        file: &str,
        mut each: impl FnMut(Piece<'_>) -> io::Result<()> + Send,
    ) -> io::Result<u64> {
        let key = self.file(name, file);
        if !file.ends_with(VOLUME) {
            return self.objects.each_piece(&key, |piece| each(Piece::Data(piece))).await;
        }
        let layout = self.objects.read(&format!("{name}/{file}{LAYOUT}")).await?;
        let layout = Layout::parse(&layout.ok_or(ErrorKind::NotFound)?)?;
        let mut unpacked = Unpacked::new(layout, each);
        self.objects.each_piece(&key, |piece| unpacked.receive(piece)).await?;
        unpacked.finish()
    }

    /// Fails if a content of a list is not there. Another process that took the lock may have removed it.
    async fn check_contents(&self, list: &[u8]) -> io::Result<()> {
        let there = self.contents().await?;
        match parse_list(list)?.iter().find(|file| there.get(&content_key(&file.file)) != Some(&file.bytes)) {
            None => Ok(()),
            Some(file) => Err(io::Error::other(format!("the content {} is not there any more", file.file))),
        }
    }

    /// Ends the uploads of an interrupted backup, whose pieces no listing shows.
    async fn end_uploads(&self, directory: &str) -> io::Result<()> {
        for (note, _) in self.objects.sizes(directory).await? {
            let text = self.objects.read(&format!("{directory}/{note}")).await?.unwrap_or_default();
            let Ok(note) = serde_json::from_slice::<UploadNote>(&text) else { continue };
            match self.objects.client.abort_multipart(&Key::from(note.key), &note.id).await {
                // It was completed or ended.
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.objects.failed(error)),
            }
        }
        Ok(())
    }

    /// Removes everything below a name.
    async fn remove_below(&self, name: &str) -> io::Result<()> {
        let listed = self.objects.sizes(name).await?;
        self.objects.remove(listed.into_iter().map(|(below, _)| format!("{name}/{below}"))).await
    }
}
