//! The template: an empty filesystem of the size that the disks of instances have, and its copies: only its data, plus
//! allocated space for the journal.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;
use tarn_base::files::publish_file;

use crate::Error;
use crate::local::host::files;
use crate::local::local_host::blocking;
use crate::local::volumes;

const FAILED: &str = "the disk template could not be created";

/// The version of the template's format. Incrementing it creates new templates.
const FORMAT: u32 = 1;

/// The journal is allocated in every disk, so it has the smallest size that `mkfs.xfs` creates.
const JOURNAL: &str = "size=64m";

/// Returns the template for disks of a size, creates it if it does not exist, and removes those of other sizes.
pub(super) async fn ensure_template(directory: &Path, mkfs: &Path, size_bytes: u64) -> Result<PathBuf, Error> {
    let path = directory.join(format!("{size_bytes}-{FORMAT}.xfs"));
    let (parent, own) = (directory.to_owned(), path.clone());
    if blocking(FAILED, move || prepare_directory(&parent, &own)).await? {
        return Ok(path);
    }
    let next = path.with_extension("new");
    let own = next.clone();
    blocking(FAILED, move || {
        File::options().write(true).create(true).truncate(true).mode(0o600).open(own)?.set_len(size_bytes)
    })
    .await?;
    let options = ["-f", "-l", JOURNAL, "-L", "tarn-disk"].map(OsStr::new);
    if let Some(message) = volumes::run_mkfs(FAILED, mkfs, &options, &next).await? {
        return Err(volumes::mkfs_error(FAILED, &message));
    }
    let own = path.clone();
    blocking(FAILED, move || {
        File::open(&next)?.sync_all()?;
        publish_file(&next, &own)
    })
    .await?;
    Ok(path)
}

/// Creates the directory, removes other templates from it, and returns whether the wanted one exists.
fn prepare_directory(directory: &Path, wanted: &Path) -> io::Result<bool> {
    files::ensure_directory(directory, 0o700)?;
    let mut found = false;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path == wanted {
            found = true;
        } else {
            files::ignore_missing(fs::remove_file(path))?;
        }
    }
    Ok(found)
}

/// How much one call copies.
const MAX_COPY_BYTES: u64 = 1 << 24;

/// How much of the superblock is read.
const SUPERBLOCK_LENGTH: usize = 128;

/// Creates a disk. It gets its name when it is complete, so a crash leaves none or all of it.
pub(super) fn copy_template(template: &Path, target: &Path) -> io::Result<()> {
    let next = target.with_extension("new");
    files::remove_tree(&next)?;
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
