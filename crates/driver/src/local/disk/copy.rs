//! Copying the template: only what is in it, and room for the journal.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use crate::local::host::trees;

/// As much is copied by one call.
const MAX_COPY_BYTES: u64 = 1 << 24;

/// As much of the filesystem's first sector is looked at.
const SUPERBLOCK_LENGTH: usize = 128;

/// Makes a disk. It has its name when it is whole, so that a crash leaves none or all of it.
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
    // A filesystem whose journal cannot be written is given up by the kernel at once. With room for the journal, a full disk of the
    // machine costs only what could not be written, and whoever asks for it to be safe is told.
    let (start, length) = locate_journal(&from)?;
    fallocate(&to, FallocateFlags::KEEP_SIZE, start, length)?;
    fs::rename(&next, target)
}

fn copy_extent(from: &File, to: &File, mut at: u64, end: u64) -> io::Result<()> {
    while at < end {
        let (mut source, mut target) = (at, at);
        let length = usize::try_from((end - at).min(MAX_COPY_BYTES)).unwrap_or(usize::MAX);
        match copy_file_range(from, Some(&mut source), to, Some(&mut target), length)? {
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the template of the disks became shorter")),
            copied => at += copied as u64,
        }
    }
    Ok(())
}

/// Where the journal of an XFS lies in its file, in bytes: its start is given as a part of the filesystem and a block in it.
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
    found.ok_or_else(|| io::Error::other("the template of the disks is damaged: remove it, and it is made again"))
}
