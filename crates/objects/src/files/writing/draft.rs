//! A file that is being written, from its beginning to its end. Everything here may block.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::{pwritev, retry_on_intr};

use super::writeback;
use crate::files::directory::Directory;
use crate::files::pending::Pending;

/// After how many bytes the kernel is asked to begin with writing.
const STRIDE_BYTES: u64 = 4 << 20;

pub(in crate::files) struct Draft {
    pub(in crate::files) file: File,
    pending: Pending,
    directory: Arc<Directory>,
    written: u64,
    begun: u64,
}

impl Draft {
    pub(in crate::files) fn create(directory: &Arc<Directory>) -> io::Result<Draft> {
        let (file, pending) = directory.create()?;
        Ok(Draft { file, pending, directory: directory.clone(), written: 0, begun: 0 })
    }

    /// Writes chunks behind what was written before.
    pub(in crate::files) fn write(&mut self, chunks: &[Bytes]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            let written = retry_on_intr(|| pwritev(&self.file, left, self.written))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut left, written);
            self.advance(written as u64)?;
        }
        Ok(())
    }

    /// Counts bytes that are in the file now. A file that grows into the reserve of the disk is refused: what was announced
    /// of it, and of others at the same time, may have been less.
    pub(in crate::files) fn advance(&mut self, written: u64) -> io::Result<()> {
        self.written += written;
        if self.written - self.begun >= STRIDE_BYTES {
            writeback::begin(&self.file, self.begun, self.written - self.begun);
            self.begun = self.written;
            if self.directory.is_full()? {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(())
    }

    /// Returns when the bytes and the name are on disk. After a failure the file is removed: what a disk did with bytes that
    /// it refused is not known.
    pub(in crate::files) fn finish(self) -> io::Result<Pending> {
        self.file.sync_data()?;
        self.directory.sync_name(&self.pending)?;
        Ok(self.pending)
    }
}
