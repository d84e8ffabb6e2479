//! Copies that never leave the machine: another name for a file, or its bytes in a new one. Everything may block.

use std::collections::HashSet;
use std::io::{self, Read};
use std::sync::Arc;

use rustix::io::Errno;
use tarn_model::ids::FileId;

use super::directory::{Directory, shard_name};
use super::pending::Pending;
use super::writing::draft::Draft;

/// How much is copied at a time; in between, the kernel is asked to begin with writing.
const STEP_BYTES: u64 = 8 << 20;

/// Another name for each of the files, on disk. A file that has all the names it may have is copied.
///
/// New names are neighbours, so that many of them share the sync of a subdirectory. It takes along how many names the files
/// have, because a journal has both in one entry; without a journal, the check after a crash counts names anew.
pub(super) fn link_all(directory: &Arc<Directory>, from: &[FileId]) -> io::Result<Vec<Pending>> {
    let linked = from.iter().map(|from| link(directory, from)).collect::<io::Result<Vec<_>>>()?;
    let mut synced = HashSet::new();
    for pending in &linked {
        if synced.insert(shard_name(pending.id())) {
            directory.sync_name(pending)?;
        }
    }
    Ok(linked)
}

fn link(directory: &Arc<Directory>, from: &FileId) -> io::Result<Pending> {
    match directory.link(from) {
        Err(error) if error.raw_os_error() == Some(Errno::MLINK.raw_os_error()) => copy(directory, from),
        linked => linked,
    }
}

/// The bytes of a file in a new one, on disk.
fn copy(directory: &Arc<Directory>, from: &FileId) -> io::Result<Pending> {
    let mut source = directory.open_file(from)?;
    let mut left = source.metadata()?.len();
    let mut draft = Draft::create(directory)?;
    while left > 0 {
        // The standard library lets the kernel copy where it can.
        let copied = io::copy(&mut (&mut source).take(left.min(STEP_BYTES)), &mut draft.file)?;
        if copied == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than it should be"));
        }
        draft.advance(copied)?;
        left -= copied;
    }
    draft.finish()
}
