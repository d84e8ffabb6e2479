//! A file that is being written. Everything here may block.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::{pwritev, retry_on_intr};

use super::writeback;
use crate::files::directory::Directory;
use crate::files::pending::Pending;

/// The number of bytes after which the kernel is asked to start writing.
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

    /// Appends chunks to the file.
    pub(in crate::files) fn write(&mut self, chunks: &[Bytes]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            let written = retry_on_intr(|| pwritev(&self.file, left, self.written))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut left, written);
            self.count_written(written as u64)?;
        }
        Ok(())
    }

    /// Counts bytes that were written. A file that grows into the reserve of the disk is refused: the announced sizes
    /// of this and of concurrent files may have been too small.
    pub(in crate::files) fn count_written(&mut self, written: u64) -> io::Result<()> {
        self.written += written;
        if self.written - self.begun >= STRIDE_BYTES {
            writeback::begin_writeback(&self.file, self.begun, self.written - self.begun);
            self.begun = self.written;
            if self.directory.is_full()? {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(())
    }

    /// Syncs the bytes and the name to disk. After a failure the file is removed: it is unknown what the disk did with
    /// the bytes.
    pub(in crate::files) fn finish(self) -> io::Result<Pending> {
        self.file.sync_data()?;
        self.directory.sync_name(&self.pending)?;
        Ok(self.pending)
    }
}
