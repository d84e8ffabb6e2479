//! Copies that never leave the machine: another name for a file, or some of its bytes in a new one. Everything may block.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use rustix::io::Errno;
use tarn_model::ids::FileId;

use super::directory::Directory;
use super::draft::Draft;
use super::pending::Pending;

/// How much is copied at a time; in between, the kernel is asked to begin with writing.
const STEP_BYTES: u64 = 8 << 20;

/// Another name for a file, on disk. A file that has all the names it may have is copied.
pub(super) fn link(directory: &Arc<Directory>, from: &FileId) -> io::Result<Pending> {
    match directory.link(from) {
        Ok(pending) => {
            // The file knows how many names it has, and a file system without a journal writes that apart from the name.
            directory.open_file(pending.id())?.sync_all()?;
            directory.sync_name(pending.id())?;
            Ok(pending)
        }
        Err(error) if error.raw_os_error() == Some(Errno::MLINK.raw_os_error()) => {
            let source = directory.open_file(from)?;
            let length = source.metadata()?.len();
            copy_file(directory, source, 0, length)
        }
        Err(error) => Err(error),
    }
}

/// Some bytes of a file in a new one, on disk.
pub(super) fn copy(directory: &Arc<Directory>, from: &FileId, offset: u64, length: u64) -> io::Result<Pending> {
    copy_file(directory, directory.open_file(from)?, offset, length)
}

fn copy_file(directory: &Arc<Directory>, mut source: File, offset: u64, length: u64) -> io::Result<Pending> {
    let mut draft = Draft::create(directory)?;
    source.seek(SeekFrom::Start(offset))?;
    let mut left = length;
    while left > 0 {
        // The standard library lets the kernel copy where it can.
        let copied = io::copy(&mut (&mut source).take(left.min(STEP_BYTES)), &mut draft.file)?;
        if copied == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than it should be"));
        }
        draft.advance(copied);
        left -= copied;
    }
    draft.finish()
}
