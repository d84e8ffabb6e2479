//! Space that a start on a full disk can use: SQLite needs some to open its file after an orderly stop.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Enough for SQLite's index of the write-ahead log, and for what a start writes.
const RESERVE_BYTES: usize = 512 << 10;

/// With less free space the disk counts as full. More than the reserve, so that freeing it does not end the wait.
pub(crate) const MIN_FREE_BYTES: u64 = 1 << 20;

/// Takes the space, unless it is taken already or the disk is too full.
pub(crate) fn keep_reserve(data: &Path) {
    let path = reserve_path(data);
    if path.metadata().is_ok_and(|found| found.len() == RESERVE_BYTES as u64) || is_full(data) {
        return;
    }
    let written = || -> io::Result<()> {
        let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
        file.write_all(&vec![0; RESERVE_BYTES])
    };
    if let Err(error) = written() {
        tracing::debug!(%error, "no space is kept for a start on a full disk");
        release_reserve(data);
    }
}

/// Frees the space. Returns whether there was any.
pub(crate) fn release_reserve(data: &Path) -> bool {
    std::fs::remove_file(reserve_path(data)).is_ok()
}

/// Whether the disk of the directory, or of the nearest one above it that exists, is full.
pub(crate) fn is_full(directory: &Path) -> bool {
    let found = directory.ancestors().find_map(|existing| rustix::fs::statvfs(existing).ok());
    // Some filesystems keep blocks for root, and not every one knows its size.
    let is_root = rustix::process::geteuid().is_root();
    let free = |disk: &rustix::fs::StatVfs| if is_root { disk.f_bfree } else { disk.f_bavail };
    found.is_some_and(|disk| disk.f_blocks > 0 && free(&disk).saturating_mul(disk.f_frsize) < MIN_FREE_BYTES)
}

fn reserve_path(data: &Path) -> PathBuf {
    data.join("reserve")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The space is taken once, and freed once.
    #[test]
    fn reserve_is_taken_and_freed() {
        let data = tempfile::tempdir().unwrap();
        assert!(!is_full(&data.path().join("not/there")), "the disk of the tests has space");
        for _ in 0..2 {
            keep_reserve(data.path());
            assert_eq!(reserve_path(data.path()).metadata().unwrap().len(), RESERVE_BYTES as u64);
        }
        assert!(release_reserve(data.path()));
        assert!(!release_reserve(data.path()));
    }
}
