//! Free space on disks, in bytes and in inodes.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use super::{format_size, nearest_existing};
use crate::findings::Finding;

/// With less than this an engine cannot guarantee that what it acknowledged is on disk.
const LEAST: u64 = 128 << 20;

/// Below this, and below a twentieth of the disk, space is scarce.
const SCARCE: u64 = 5_000_000_000;

/// The inodes below which the disk counts as full, and as nearly full.
const LEAST_FILES: u64 = 256;
const SCARCE_FILES: u64 = 20_000;

/// A directory that needs free space.
#[derive(Clone, Debug)]
pub struct DiskLocation {
    pub check: &'static str,
    /// What is stored there.
    pub what: &'static str,
    /// The existing or future path.
    pub directory: PathBuf,
    /// Whether only small files are stored there, which need far less.
    pub is_small: bool,
}

/// The free space of a disk.
#[derive(Clone, Copy, Debug)]
struct DiskSpace {
    bytes: u64,
    free_bytes: u64,
    /// Zero if the filesystem allocates inodes as needed.
    files: u64,
    free_files: u64,
}

/// Checks one directory.
pub fn space(place: &DiskLocation) -> Finding {
    let directory = nearest_existing(&place.directory);
    match read_disk_space(&directory) {
        Ok(room) => judge_space(place, &directory, room),
        Err(error) => Finding::skipped(
            place.check,
            format!("{} cannot be examined: {error}", directory.display()),
            "make it accessible to the user who runs `tarn doctor`",
        ),
    }
}

fn read_disk_space(directory: &Path) -> rustix::io::Result<DiskSpace> {
    let disk = statvfs(directory)?;
    Ok(DiskSpace {
        bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        files: disk.f_files,
        free_files: disk.f_favail,
    })
}

fn judge_space(place: &DiskLocation, directory: &Path, room: DiskSpace) -> Finding {
    let (check, what, shown) = (place.check, place.what, directory.display());
    let (least, scarce) = if place.is_small { (1 << 20, 16 << 20) } else { (LEAST, SCARCE.min(room.bytes / 20)) };
    let counted = room.files > 0;
    let free =
        format!("{} of {} are free for {what} at {shown}", format_size(room.free_bytes), format_size(room.bytes));
    let todo = format!("free space on the disk of {shown}, or move the data to a larger one");
    if room.free_bytes < least {
        return Finding::failure(check, format!("only {free}"), todo);
    }
    if counted && room.free_files < LEAST_FILES.min(room.files / 2) {
        return Finding::failure(check, format!("only {} more files can be created at {shown}", room.free_files), todo);
    }
    if room.free_bytes < scarce {
        return Finding::warning(check, format!("only {free}"), todo);
    }
    if counted && !place.is_small && room.free_files < SCARCE_FILES.min(room.files / 20) {
        return Finding::warning(check, format!("only {} more files can be created at {shown}", room.free_files), todo);
    }
    Finding::ok(check, free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Level;

    #[test]
    fn scarce_space_is_reported() {
        let place =
            |is_small| DiskLocation { check: "space.data", what: "everything", directory: "/".into(), is_small };
        let level = |is_small, bytes, free_bytes, files, free_files| {
            judge_space(&place(is_small), Path::new("/"), DiskSpace { bytes, free_bytes, files, free_files }).level
        };
        let gb = 1_000_000_000;
        assert_eq!(level(false, 250 * gb, 65 * gb, 1 << 20, 1 << 19), Level::Ok);
        assert_eq!(level(false, 250 * gb, 4 * gb, 1 << 20, 1 << 19), Level::Warning);
        assert_eq!(level(false, 250 * gb, 1 << 20, 1 << 20, 1 << 19), Level::Failure);
        assert_eq!(level(false, 250 * gb, 65 * gb, 1 << 20, 10), Level::Failure);
        assert_eq!(level(false, 250 * gb, 65 * gb, 1 << 20, 10_000), Level::Warning);
        assert_eq!(level(false, 250 * gb, 65 * gb, 0, 0), Level::Ok, "some filesystems do not count files");
        assert_eq!(level(true, 64 << 20, 32 << 20, 0, 0), Level::Ok);
    }
}
