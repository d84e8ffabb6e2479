//! Reading the bytes of an object. A file is not removed before its last reader is done.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use tarn_model::ids::FileId;
use tarn_model::objects::{Body, MAX_PARTS, Object, Part};
use tarn_store::parts;

use crate::files::{self, Files};
use crate::{Error, Objects, Result};

impl Objects {
    /// Reads the bytes of an object that was just found. `NoSuchVersion` when it has been removed since: the caller
    /// looks it up again.
    pub async fn read(&self, object: &Object, range: Range<u64>) -> Result<ObjectReader> {
        let content = match &object.body {
            Body::Inline(data) => {
                let slice = data.get(range.start as usize..range.end as usize).unwrap_or_default();
                return Ok(ObjectReader::Inline(Some(Bytes::copy_from_slice(slice))));
            }
            Body::Parts(content) => content.clone(),
        };
        let before = self.store().generation();
        let parts: Vec<Part> =
            self.store().read(|tx| parts::list(tx, &content, 0, MAX_PARTS).map_err(Error::from)).await?;
        let (mut pieces, remaining) = (file_pieces(&parts, &range), range.end - range.start);
        if pieces.iter().map(|piece| piece.2).sum::<u64>() != remaining {
            return Err(Error::NoSuchVersion);
        }
        let pinned = self.pins().pin(self.clone(), pieces.iter().map(|piece| piece.0.clone()).collect())?;
        // Files are removed after their rows. If a row still exists now that the files are pinned, so do all files.
        if (before.is_none() || before != self.store().generation()) && !self.content_exists(&parts).await? {
            return Err(Error::NoSuchVersion);
        }
        let files = self.files().clone();
        let mut current = pieces.pop_front().map(|(file, offset, length)| files.read(&file, offset, length));
        // A file that cannot be opened should cause an error response, not a response that breaks off.
        if let Some(first) = &mut current
            && let Err(error) = first.wait_until_open().await
        {
            // Where replicas share the files, another replica may have removed this one.
            return Err(if self.content_exists(&parts).await? { error.into() } else { Error::NoSuchVersion });
        }
        Ok(ObjectReader::Files(Box::new(FilesReader { files, remaining, pieces, current, _pinned: pinned })))
    }

    /// Returns whether the content with these parts still exists.
    async fn content_exists(&self, parts: &[Part]) -> Result<bool> {
        let Some(first) = parts.first() else {
            return Ok(true);
        };
        let read = self.store().read(|tx| parts::get(tx, &first.content, first.number).map_err(Error::from));
        Ok(read.await?.is_some())
    }

    /// Removes files that no row refers to any more, each as soon as it has no reader. Continues when the caller stops
    /// waiting.
    pub(crate) async fn remove_files(&self, files: Vec<FileId>) {
        if !files.is_empty() {
            let free = self.pins().mark_for_removal(files);
            // A failure is logged there.
            let _ = tokio::spawn(self.clone().remove_unread_files(free)).await;
        }
    }

    /// Removes files that are marked for removal and have no reader.
    async fn remove_unread_files(self, free: Vec<FileId>) {
        self.files().remove(free.clone()).await;
        self.pins().finish_removal(&free);
    }
}

/// One piece of a range: file, offset and length.
type Piece = (FileId, u64, u64);

fn file_pieces(parts: &[Part], range: &Range<u64>) -> VecDeque<Piece> {
    let mut start = 0;
    let mut pieces = VecDeque::new();
    for part in parts {
        let end = start + part.size;
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            pieces.push_back((part.file.clone(), from - start, to - from));
        }
        start = end;
    }
    pieces
}

/// A stream of the bytes of an object.
pub enum ObjectReader {
    /// The bytes of a small object.
    Inline(Option<Bytes>),
    /// The bytes come from files.
    Files(Box<FilesReader>),
}

/// A stream of the bytes of several files, one after the other.
pub struct FilesReader {
    files: Files,
    pieces: VecDeque<Piece>,
    current: Option<files::FileReader>,
    remaining: u64,
    _pinned: PinnedFiles,
}

impl ObjectReader {
    /// Returns the number of bytes left.
    pub fn remaining(&self) -> u64 {
        match self {
            ObjectReader::Inline(data) => data.as_ref().map_or(0, |data| data.len() as u64),
            ObjectReader::Files(reader) => reader.remaining,
        }
    }
}

impl Stream for ObjectReader {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.get_mut() {
            ObjectReader::Inline(data) => Poll::Ready(data.take().filter(|data| !data.is_empty()).map(Ok)),
            ObjectReader::Files(reader) => reader.poll_bytes(cx),
        }
    }
}

impl FilesReader {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if self.current.is_none() {
                let Some((file, offset, length)) = self.pieces.pop_front() else {
                    return Poll::Ready(None);
                };
                self.current = Some(self.files.read(&file, offset, length));
            }
            let Some(current) = &mut self.current else {
                return Poll::Ready(None);
            };
            match Pin::new(current).poll_next(cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    self.remaining = self.remaining.saturating_sub(bytes.len() as u64);
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Poll::Ready(None) => self.current = None,
                other => return other,
            }
        }
    }
}

/// The files that are being read, and those to be removed after their last reader.
#[derive(Clone, Default)]
pub(crate) struct FilePins(Arc<Mutex<PinTable>>);

#[derive(Default)]
struct PinTable {
    readers: HashMap<FileId, Readers>,
    being_removed: HashSet<FileId>,
}

#[derive(Default)]
struct Readers {
    count: usize,
    remove: bool,
}

impl FilePins {
    /// Pins files against removal. `NoSuchVersion` when one is being removed.
    fn pin(&self, objects: Objects, files: Vec<FileId>) -> Result<PinnedFiles> {
        let mut table = self.0.lock();
        if files.iter().any(|file| table.being_removed.contains(file)) {
            return Err(Error::NoSuchVersion);
        }
        for file in &files {
            table.readers.entry(file.clone()).or_default().count += 1;
        }
        Ok(PinnedFiles { objects, files })
    }

    /// Marks files for removal, so that no new reader pins them. Returns those that can be removed now; the others are
    /// removed by their last reader.
    fn mark_for_removal(&self, files: Vec<FileId>) -> Vec<FileId> {
        let mut table = self.0.lock();
        let mut free = Vec::new();
        for file in files {
            table.being_removed.insert(file.clone());
            match table.readers.get_mut(&file) {
                Some(readers) => readers.remove = true,
                None => free.push(file),
            }
        }
        free
    }

    /// Returns those of the files that are being read or removed.
    pub(crate) fn pinned_or_removed(&self, files: Vec<FileId>) -> Vec<FileId> {
        let table = self.0.lock();
        let is_in_use = |file: &FileId| table.readers.contains_key(file) || table.being_removed.contains(file);
        files.into_iter().filter(is_in_use).collect()
    }

    fn finish_removal(&self, files: &[FileId]) {
        let mut table = self.0.lock();
        for file in files {
            table.being_removed.remove(file);
        }
    }

    /// Removes one reader of each file. Returns the files whose last reader this was and that are to be removed.
    fn unpin(&self, files: &[FileId]) -> Vec<FileId> {
        let mut table = self.0.lock();
        let mut free = Vec::new();
        for file in files {
            if let Some(readers) = table.readers.get_mut(file) {
                readers.count -= 1;
                if readers.count == 0 {
                    let remove = readers.remove;
                    table.readers.remove(file);
                    if remove {
                        free.push(file.clone());
                    }
                }
            }
        }
        free
    }
}

/// Pins on files that are being read.
struct PinnedFiles {
    objects: Objects,
    files: Vec<FileId>,
}

impl Drop for PinnedFiles {
    fn drop(&mut self) {
        let free = self.objects.pins().unpin(&self.files);
        if !free.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // Without a runtime the engine is stopping, and the sweep after the next start removes them.
            runtime.spawn(self.objects.clone().remove_unread_files(free));
        }
    }
}
