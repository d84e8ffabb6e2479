//! The free space of the disk that layers are unpacked to. The database may be on the same disk, so layers never use
//! all of it.

use std::io;
use std::path::Path;

use rustix::fs::statvfs;

/// The reserved fraction of the disk (one twentieth), and its upper limit in bytes.
const RESERVED_PART: u64 = 20;
const MOST_RESERVED: u64 = 5_000_000_000;

/// The minimum size that each entry of a layer counts with, so that limiting bytes also limits files.
const FILE: u64 = 4 << 10;

/// Returns how many bytes may still be written to the disk of a directory. Inodes run out like bytes; a filesystem
/// without a fixed number of them reports zero.
pub(super) fn free_disk_bytes(directory: &Path) -> io::Result<u64> {
    let disk = statvfs(directory)?;
    let reserved = (disk.f_blocks.saturating_mul(disk.f_frsize) / RESERVED_PART).min(MOST_RESERVED);
    let bytes = disk.f_bavail.saturating_mul(disk.f_frsize).saturating_sub(reserved);
    if disk.f_files == 0 {
        return Ok(bytes);
    }
    let files = disk.f_favail.saturating_sub(disk.f_files / RESERVED_PART);
    Ok(bytes.min(files.saturating_mul(FILE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    /// A part of the bytes and of the inodes is never reported as free.
    #[test]
    fn part_of_the_disk_is_reserved() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounts need root");
            return;
        }
        struct Mounted(tempfile::TempDir);
        impl Drop for Mounted {
            fn drop(&mut self) {
                unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
            }
        }
        let disk = |options: &std::ffi::CStr| {
            let directory = tempfile::tempdir().unwrap();
            mount("test", directory.path(), "tmpfs", MountFlags::empty(), options).unwrap();
            Mounted(directory)
        };
        let (bytes, files) = (disk(c"size=1000k,nr_inodes=1000"), disk(c"size=100m,nr_inodes=101"));
        assert_eq!(free_disk_bytes(bytes.0.path()).unwrap(), 950 << 10);
        assert_eq!(free_disk_bytes(files.0.path()).unwrap(), 95 * FILE, "the directory itself is one of them");
        std::fs::write(bytes.0.path().join("a"), vec![7; 960 << 10]).unwrap();
        assert_eq!(free_disk_bytes(bytes.0.path()).unwrap(), 0);
    }
}
