//! Copies of files: another name for the same file, or its bytes in a new one. Everything here may block.

use std::collections::HashSet;
use std::io::{self, Read};
use std::sync::Arc;

use rustix::io::Errno;
use tarn_model::ids::FileId;

use super::directory::{Directory, shard_name};
use super::pending::Pending;
use super::writing::draft::Draft;

/// The bytes copied at a time. In between, the kernel is asked to start writing.
const STEP_BYTES: u64 = 8 << 20;

/// Creates another name for each of the files, on disk. A file that has the maximum number of names is copied.
///
/// New names are in the same subdirectory, so that many of them share its sync. The sync includes the link counts of
/// the files, because a journal has both in one entry; without a journal, the check after a crash counts the links
/// again.
pub(super) fn link_all(directory: &Arc<Directory>, from: &[FileId]) -> io::Result<Vec<Pending>> {
    let linked = from.iter().map(|from| link_or_copy(directory, from)).collect::<io::Result<Vec<_>>>()?;
    let mut synced = HashSet::new();
    for pending in &linked {
        if synced.insert(shard_name(pending.id())) {
            directory.sync_name(pending)?;
        }
    }
    Ok(linked)
}

fn link_or_copy(directory: &Arc<Directory>, from: &FileId) -> io::Result<Pending> {
    match directory.link(from) {
        Err(error) if error.raw_os_error() == Some(Errno::MLINK.raw_os_error()) => copy_file(directory, from),
        linked => linked,
    }
}

/// Copies the bytes of a file into a new one, on disk.
fn copy_file(directory: &Arc<Directory>, from: &FileId) -> io::Result<Pending> {
    let mut source = directory.open_file(from)?;
    let mut left = source.metadata()?.len();
    let mut draft = Draft::create(directory)?;
    while left > 0 {
        // The standard library lets the kernel copy where possible.
        let copied = io::copy(&mut (&mut source).take(left.min(STEP_BYTES)), &mut draft.file)?;
        if copied == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than it should be"));
        }
        draft.count_written(copied)?;
        left -= copied;
    }
    draft.finish()
}
