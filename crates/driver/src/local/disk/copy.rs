//! Copies the template: only its data, plus allocated space for the journal.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use crate::local::host::trees;

/// How much one call copies.
const MAX_COPY_BYTES: u64 = 1 << 24;

/// How much of the superblock is read.
const SUPERBLOCK_LENGTH: usize = 128;

/// Creates a disk. It gets its name when it is complete, so a crash leaves none or all of it.
pub(super) fn copy_template(template: &Path, target: &Path) -> io::Result<()> {
    let next = target.with_extension("new");
    trees::remove_tree(&next)?;
    let from = File::open(template)?;
    let to = File::options().read(true).write(true).create_new(true).mode(0o600).open(&next)?;
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut at = 0;
    loop {
        at = match seek(&from, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            found => found?,
        };
        let end = seek(&from, SeekFrom::Hole(at))?;
        copy_extent(&from, &to, at, end)?;
        at = end;
    }
    // The kernel shuts down a filesystem whose journal it cannot write. With space allocated for the journal, a full
    // host disk loses only the data that could not be written, and `fsync` reports that.
    let (start, length) = locate_journal(&from)?;
    fallocate(&to, FallocateFlags::KEEP_SIZE, start, length)?;
    fs::rename(&next, target)
}

fn copy_extent(from: &File, to: &File, mut at: u64, end: u64) -> io::Result<()> {
    while at < end {
        let (mut source, mut target) = (at, at);
        let length = usize::try_from((end - at).min(MAX_COPY_BYTES)).unwrap_or(usize::MAX);
        match copy_file_range(from, Some(&mut source), to, Some(&mut target), length)? {
            0 => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the disk template became shorter during the copy",
                ));
            }
            copied => at += copied as u64,
        }
    }
    Ok(())
}

/// Locates the journal of an XFS in its file, in bytes. The superblock gives its start as an allocation group and a
/// block in it.
fn locate_journal(file: &File) -> io::Result<(u64, u64)> {
    let mut sector = [0; SUPERBLOCK_LENGTH];
    file.read_exact_at(&mut sector, 0)?;
    let number = |at: usize, bytes: usize| {
        sector[at..at + bytes].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let (block_bytes, start, part_blocks, blocks) = (number(4, 4), number(48, 8), number(84, 4), number(96, 4));
    let shift = u32::from(sector[124]);
    let sensible = &sector[..4] == b"XFSB" && shift < 32 && blocks > 0;
    let locate = |()| {
        let (part, block) = (start >> shift, start & ((1 << shift) - 1));
        let first = part.checked_mul(part_blocks)?.checked_add(block)?;
        Some((first.checked_mul(block_bytes)?, blocks.checked_mul(block_bytes)?))
    };
    let found = sensible.then_some(()).and_then(locate);
    found.ok_or_else(|| io::Error::other("the disk template is damaged: remove it, and the engine creates it again"))
}
