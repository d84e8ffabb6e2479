//! Reading one file. Cached bytes are read in place; a blocking thread is used only when the disk is.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, preadv2};
use tarn_model::ids::FileId;
use tokio::task::JoinHandle;

use super::Files;
use super::buffers::{BUFFER_BYTES, Buffer};

/// How far the kernel is asked to read ahead of bytes that came from the disk.
const AHEAD_BYTES: u64 = 2 << 20;

/// A stream of the bytes of a file, in pieces of any size.
pub struct FileReader {
    files: Files,
    id: FileId,
    offset: u64,
    remaining: u64,
    source: Source,
}

enum Source {
    Closed,
    Opening(JoinHandle<io::Result<File>>),
    Open(Arc<File>),
    Waiting(Arc<File>, JoinHandle<io::Result<Buffer>>),
}

impl FileReader {
    pub(super) fn new(files: &Files, id: &FileId, offset: u64, length: u64) -> FileReader {
        FileReader { files: files.clone(), id: id.clone(), offset, remaining: length, source: Source::Closed }
    }

    /// Returns the number of bytes left.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Opens the file, so that a missing file is noticed before a response starts. From here on it can be read to its
    /// end, even when it is removed.
    pub async fn wait_until_open(&mut self) -> io::Result<()> {
        std::future::poll_fn(|ctx| self.poll_open(ctx)).await.map(|_| ())
    }

    fn poll_open(&mut self, ctx: &mut Context<'_>) -> Poll<io::Result<Arc<File>>> {
        loop {
            let opened = match &mut self.source {
                Source::Open(file) | Source::Waiting(file, _) => return Poll::Ready(Ok(file.clone())),
                Source::Opening(thread) => ready!(Pin::new(thread).poll(ctx)).map_err(io::Error::other).flatten(),
                Source::Closed => match self.files.0.directory.open_file_now(&self.id) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let (directory, id) = (self.files.0.directory.clone(), self.id.clone());
                        let thread = tokio::task::spawn_blocking(move || directory.open_file(&id));
                        self.source = Source::Opening(thread);
                        continue;
                    }
                    opened => opened,
                },
            };
            self.source = Source::Closed;
            self.source = Source::Open(Arc::new(opened?));
        }
    }

    fn poll_piece(&mut self, ctx: &mut Context<'_>) -> Poll<io::Result<Buffer>> {
        loop {
            if let Source::Waiting(file, thread) = &mut self.source {
                let buffer = ready!(Pin::new(thread).poll(ctx)).map_err(io::Error::other).flatten();
                self.source = Source::Open(file.clone());
                return Poll::Ready(buffer);
            }
            let file = ready!(self.poll_open(ctx))?;
            if let Some(buffer) = self.start_read(file) {
                return Poll::Ready(Ok(buffer));
            }
        }
    }

    /// Reads the next piece if it is cached; otherwise starts a blocking thread for it.
    fn start_read(&mut self, file: Arc<File>) -> Option<Buffer> {
        let wanted = usize::try_from(self.remaining).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
        let mut buffer = self.files.0.buffers.take_buffer(None);
        let offset = self.offset;
        let read =
            buffer.fill(wanted, |room| preadv2(&file, &mut [IoSliceMut::new(room)], offset, ReadWriteFlags::NOWAIT));
        match read {
            Ok(_) => Some(buffer),
            // The bytes are on the disk, or the file system lacks the flag. A blocking thread finds the actual error.
            Err(_) => {
                let reader = file.clone();
                let thread = tokio::task::spawn_blocking(move || read_from_disk(&reader, buffer, offset, wanted));
                self.source = Source::Waiting(file, thread);
                None
            }
        }
    }
}

fn read_from_disk(file: &File, mut buffer: Buffer, offset: u64, wanted: usize) -> io::Result<Buffer> {
    // Later pieces are read from the disk while this one is sent to the client. It is a hint, so it may fail.
    let ahead = std::num::NonZeroU64::new(wanted as u64 + AHEAD_BYTES);
    let _ = fadvise(file, offset, ahead, Advice::WillNeed);
    buffer.fill(wanted, |room| file.read_at(room, offset))?;
    Ok(buffer)
}

impl Stream for FileReader {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        let next = ready!(self.poll_piece(ctx));
        let next = next.and_then(|buffer| match buffer.as_ref().len() as u64 {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than it should be")),
            length => {
                self.offset += length;
                self.remaining -= length;
                Ok(Bytes::from_owner(buffer))
            }
        });
        if next.is_err() {
            self.remaining = 0;
        }
        Poll::Ready(Some(next))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.remaining > 0), None)
    }
}
