//! The taking in of one body: received, written and summed at the same time, with a fixed amount of memory.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::writer::Writer;
use crate::files::buffers::Buffer;
use crate::files::pending::Pending;
use crate::files::sums::{Digests, Line, Sums, Totals};
use crate::files::{Files, INLINE_MAX};

/// How many buffers a body may hold at a time, 1 MiB in all: one fills while others are written and summed.
const BUFFERS: usize = 4;

/// A body on its way in. Dropped before it is finished, it leaves nothing.
pub struct Intake {
    files: Files,
    wanted: Sums,
    always_file: bool,
    size: u64,
    /// The body, while it is small.
    small: Vec<u8>,
    large: Option<Large>,
}

/// What a body that becomes a file needs.
struct Large {
    files: Files,
    permits: Arc<Semaphore>,
    filling: Option<Buffer>,
    line: Line,
    writer: Writer,
}

/// A body that is in, with the sums that were wanted. Numbers are in big-endian order.
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
    pub body: Taken,
}

/// Where a body went.
#[derive(Debug)]
pub enum Taken {
    /// It is small enough for a row.
    Inline(Vec<u8>),
    /// It is a file, which is on disk.
    File(Pending),
}

impl Intake {
    pub(in crate::files) fn new(files: &Files, wanted: Sums, always_file: bool) -> Intake {
        Intake { files: files.clone(), wanted, always_file, size: 0, small: Vec::new(), large: None }
    }

    /// Takes the next piece. It is copied, so that whoever received it can use its memory again. A failure may be that of an
    /// earlier piece, and the body is lost with it.
    pub async fn push(&mut self, piece: Bytes) -> io::Result<()> {
        self.size += piece.len() as u64;
        if self.large.is_none() && self.small.len() + piece.len() <= INLINE_MAX {
            self.small.extend_from_slice(&piece);
            return Ok(());
        }
        self.enlarge().await?.push(&piece).await
    }

    /// Ends the body. What is returned is on disk, or small.
    pub async fn finish(mut self) -> io::Result<Received> {
        if self.always_file {
            self.enlarge().await?;
        }
        match self.large {
            Some(large) => {
                let (digests, pending) = large.finish().await?;
                Ok(Received::new(self.size, digests, Taken::File(pending)))
            }
            None => {
                let mut totals = Totals::new(self.wanted);
                totals.update(&self.small);
                Ok(Received::new(self.size, totals.finish(), Taken::Inline(self.small)))
            }
        }
    }

    /// Makes the body one that becomes a file, if it is not yet.
    async fn enlarge(&mut self) -> io::Result<&mut Large> {
        if self.large.is_none() {
            let large = self.large.insert(Large::new(&self.files, self.wanted));
            large.push(&std::mem::take(&mut self.small)).await?;
        }
        Ok(self.large.as_mut().expect("it was just made"))
    }
}

impl Large {
    fn new(files: &Files, wanted: Sums) -> Large {
        Large {
            files: files.clone(),
            permits: Arc::new(Semaphore::new(BUFFERS)),
            filling: None,
            line: files.0.hashers.line(wanted),
            writer: Writer::new(&files.0.directory),
        }
    }

    async fn push(&mut self, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            let mut buffer = match self.filling.take() {
                Some(buffer) => buffer,
                None => {
                    let permit = self.permits.clone().acquire_owned().await;
                    let permit = permit.expect("nobody closes the semaphore");
                    self.files.0.buffers.take(Some(permit))
                }
            };
            piece = &piece[buffer.append(piece)..];
            if buffer.is_full() {
                let chunk = Bytes::from_owner(buffer);
                self.line.push(chunk.clone());
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
            self.line.push(chunk.clone());
        }
        tokio::try_join!(self.line.finish(), self.writer.finish(last))
    }
}

impl Received {
    fn new(size: u64, sums: Digests, body: Taken) -> Received {
        let Digests { md5, crc32, crc32c, crc64nvme, sha1, sha256 } = sums;
        Received { size, md5, crc32, crc32c, crc64nvme, sha1, sha256, body }
    }
}
