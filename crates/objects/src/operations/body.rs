//! Reading what an object holds. Files that are being read are not removed before their readers have left.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use tarn_model::ids::FileId;
use tarn_model::objects::{Body, MAX_PARTS, Object, Part};
use tarn_store::parts;

use crate::files::{self, Files};
use crate::{Error, Objects, Result};

impl Objects {
    /// Reads the bytes of an object that was just found. `NoSuchVersion` when it is gone already: look again.
    pub async fn read(&self, object: &Object, range: Range<u64>) -> Result<Reading> {
        let content = match &object.body {
            Body::Inline(data) => {
                let slice = data.get(range.start as usize..range.end as usize).unwrap_or_default();
                return Ok(Reading::Inline(Some(Bytes::copy_from_slice(slice))));
            }
            Body::Parts(content) => content.clone(),
        };
        let before = self.store().generation();
        let parts: Vec<Part> =
            self.store().read(|tx| parts::list(tx, &content, 0, MAX_PARTS).map_err(Error::from)).await?;
        let (mut pieces, remaining) = (pieces(&parts, &range), range.end - range.start);
        if pieces.iter().map(|piece| piece.2).sum::<u64>() != remaining {
            return Err(Error::NoSuchVersion);
        }
        let pinned = self.pins().pin(self.clone(), pieces.iter().map(|piece| piece.0.clone()).collect())?;
        // Files are removed after their rows: if a row is still there now that they are pinned, so are all files.
        if (before.is_none() || before != self.store().generation()) && !self.is_there(&parts).await? {
            return Err(Error::NoSuchVersion);
        }
        let files = self.files().clone();
        let mut current = pieces.pop_front().map(|(file, offset, length)| files.read(&file, offset, length));
        // What cannot be read at all is better told by an error than by an answer that breaks off.
        if let Some(first) = &mut current
            && let Err(error) = first.opened().await
        {
            // Where replicas share the files, another one may have removed this one since.
            return Err(if self.is_there(&parts).await? { error.into() } else { Error::NoSuchVersion });
        }
        Ok(Reading::Files(Box::new(FromFiles { files, remaining, pieces, current, _pinned: pinned })))
    }

    /// Whether the content that has these parts is still there.
    async fn is_there(&self, parts: &[Part]) -> Result<bool> {
        let Some(first) = parts.first() else {
            return Ok(true);
        };
        let read = self.store().read(|tx| parts::get(tx, &first.content, first.number).map_err(Error::from));
        Ok(read.await?.is_some())
    }

    /// Removes files that no row names any more, each as soon as nobody reads it. It goes on when nobody waits for it.
    pub(crate) async fn remove_files(&self, files: Vec<FileId>) {
        if !files.is_empty() {
            let free = self.pins().doom(files);
            // Its end is only a matter of time; whether it came to it is told to the log.
            let _ = tokio::spawn(self.clone().remove_free(free)).await;
        }
    }

    /// Removes files that are doomed and that nobody reads.
    async fn remove_free(self, free: Vec<FileId>) {
        self.files().remove(free.clone()).await;
        self.pins().forget(&free);
    }
}

/// Which bytes of which files make up a range: file, offset and length.
type Piece = (FileId, u64, u64);

fn pieces(parts: &[Part], range: &Range<u64>) -> VecDeque<Piece> {
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

/// The bytes of an object, piece by piece.
pub enum Reading {
    /// All at once.
    Inline(Option<Bytes>),
    /// From files.
    Files(Box<FromFiles>),
}

/// Bytes out of files, one after the other.
pub struct FromFiles {
    files: Files,
    pieces: VecDeque<Piece>,
    current: Option<files::Reading>,
    remaining: u64,
    _pinned: Pinned,
}

impl Reading {
    /// How many bytes are still to come.
    pub fn remaining(&self) -> u64 {
        match self {
            Reading::Inline(data) => data.as_ref().map_or(0, |data| data.len() as u64),
            Reading::Files(reading) => reading.remaining,
        }
    }
}

impl Stream for Reading {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.get_mut() {
            Reading::Inline(data) => Poll::Ready(data.take().filter(|data| !data.is_empty()).map(Ok)),
            Reading::Files(reading) => reading.poll(cx),
        }
    }
}

impl FromFiles {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
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

/// Which files are being read, and which of them are to be removed when that is over.
#[derive(Clone, Default)]
pub(crate) struct Pins(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    readers: HashMap<FileId, Readers>,
    doomed: HashSet<FileId>,
}

#[derive(Default)]
struct Readers {
    count: usize,
    remove: bool,
}

impl Pins {
    /// Keeps files from being removed; `NoSuchVersion` when one is being removed now.
    fn pin(&self, objects: Objects, files: Vec<FileId>) -> Result<Pinned> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.iter().any(|file| table.doomed.contains(file)) {
            return Err(Error::NoSuchVersion);
        }
        for file in &files {
            table.readers.entry(file.clone()).or_default().count += 1;
        }
        Ok(Pinned { objects, files })
    }

    /// Of these files, those that can be removed now; nobody will begin to read them. The others are removed by their last
    /// reader.
    fn doom(&self, files: Vec<FileId>) -> Vec<FileId> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = Vec::new();
        for file in files {
            table.doomed.insert(file.clone());
            match table.readers.get_mut(&file) {
                Some(readers) => readers.remove = true,
                None => free.push(file),
            }
        }
        free
    }

    /// Those of the files that are being read or removed.
    pub(crate) fn held(&self, files: Vec<FileId>) -> Vec<FileId> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_held = |file: &FileId| table.readers.contains_key(file) || table.doomed.contains(file);
        files.into_iter().filter(is_held).collect()
    }

    fn forget(&self, files: &[FileId]) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for file in files {
            table.doomed.remove(file);
        }
    }

    /// One reader less of each; returns the files that waited for their last one.
    fn unpin(&self, files: &[FileId]) -> Vec<FileId> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Files that are being read.
struct Pinned {
    objects: Objects,
    files: Vec<FileId>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let free = self.objects.pins().unpin(&self.files);
        if !free.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // Without a runtime the engine is ending, and the sweep of the next start finds them.
            runtime.spawn(self.objects.clone().remove_free(free));
        }
    }
}
