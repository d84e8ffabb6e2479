//! Receiving one body: it is received, written and summed at the same time, with a fixed amount of memory.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::writer::Writer;
use crate::files::buffers::Buffer;
use crate::files::pending::Pending;
use crate::files::sums::{BodySums, Digests, Sums, Totals};
use crate::files::{Files, INLINE_MAX};

/// The maximum number of buffers of a body, 1 MiB in all: one is filled while others are written and summed.
const BUFFERS: usize = 4;

/// A body that is being received. Dropping it before it is finished leaves nothing behind.
pub struct Intake {
    files: Files,
    wanted: Sums,
    always_file: bool,
    size: u64,
    /// The bytes, while the body is small.
    small: Vec<u8>,
    large: Option<FileIntake>,
}

/// The state of a body that becomes a file.
struct FileIntake {
    files: Files,
    permits: Arc<Semaphore>,
    filling: Option<Buffer>,
    sums: BodySums,
    writer: Writer,
}

/// A received body with the requested sums. Numbers are in big-endian order.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Received {
    pub size: u64,
    pub md5: Option<[u8; 16]>,
    pub crc32: Option<[u8; 4]>,
    pub crc32c: Option<[u8; 4]>,
    pub crc64nvme: Option<[u8; 8]>,
    pub sha1: Option<[u8; 20]>,
    pub sha256: Option<[u8; 32]>,
    pub body: ReceivedBody,
}

/// The storage of a received body.
#[derive(Debug)]
pub enum ReceivedBody {
    /// The bytes, small enough for a row.
    Inline(Vec<u8>),
    /// A file, which is on disk.
    File(Pending),
}

impl Intake {
    pub(in crate::files) fn new(files: &Files, wanted: Sums, always_file: bool) -> Intake {
        Intake { files: files.clone(), wanted, always_file, size: 0, small: Vec::new(), large: None }
    }

    /// Adds the next piece. It is copied, so that the caller can reuse its memory. An error may be that of an earlier
    /// piece, and the body is lost.
    pub async fn push(&mut self, piece: Bytes) -> io::Result<()> {
        self.size += piece.len() as u64;
        if self.large.is_none() && self.small.len() + piece.len() <= INLINE_MAX {
            self.small.extend_from_slice(&piece);
            return Ok(());
        }
        self.become_file().await?.push(&piece).await
    }

    /// Finishes the body. The result is on disk, or small.
    pub async fn finish(mut self) -> io::Result<Received> {
        if self.always_file {
            self.become_file().await?;
        }
        match self.large {
            Some(large) => {
                let (digests, pending) = large.finish().await?;
                Ok(Received::new(self.size, digests, ReceivedBody::File(pending)))
            }
            None => {
                let mut totals = Totals::new(self.wanted);
                totals.update(&self.small);
                Ok(Received::new(self.size, totals.finish(), ReceivedBody::Inline(self.small)))
            }
        }
    }

    /// Turns the body into one that becomes a file, unless it is already.
    async fn become_file(&mut self) -> io::Result<&mut FileIntake> {
        if self.large.is_none() {
            let large = self.large.insert(FileIntake::new(&self.files, self.wanted));
            large.push(&std::mem::take(&mut self.small)).await?;
        }
        Ok(self.large.as_mut().expect("it was just made"))
    }
}

impl FileIntake {
    fn new(files: &Files, wanted: Sums) -> FileIntake {
        FileIntake {
            files: files.clone(),
            permits: Arc::new(Semaphore::new(BUFFERS)),
            filling: None,
            sums: files.0.hashers.start_body(wanted),
            writer: Writer::new(&files.0.directory),
        }
    }

    async fn push(&mut self, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            let mut buffer = match self.filling.take() {
                Some(buffer) => buffer,
                None => {
                    let permit = self.permits.clone().acquire_owned().await;
                    let permit = permit.expect("the semaphore is never closed");
                    self.files.0.buffers.take_buffer(Some(permit))
                }
            };
            piece = &piece[buffer.append(piece)..];
            if buffer.is_full() {
                let chunk = Bytes::from_owner(buffer);
                self.sums.push(chunk.clone());
                self.writer.push(chunk)?;
            } else {
                self.filling = Some(buffer);
            }
        }
        Ok(())
    }

    async fn finish(self) -> io::Result<(Digests, Pending)> {
        let last = self.filling.map(Bytes::from_owner);
        if let Some(chunk) = &last {
            self.sums.push(chunk.clone());
        }
        tokio::try_join!(self.sums.finish(), self.writer.finish(last))
    }
}

impl Received {
    fn new(size: u64, sums: Digests, body: ReceivedBody) -> Received {
        let Digests { md5, crc32, crc32c, crc64nvme, sha1, sha256 } = sums;
        Received { size, md5, crc32, crc32c, crc64nvme, sha1, sha256, body }
    }
}
