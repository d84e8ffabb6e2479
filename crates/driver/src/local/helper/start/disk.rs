//! The disk of an instance, mounted only for it.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use libcontainer::syscall::linux::MOUNT_ATTR_NODEV;
use rustix::fs::{CWD, FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::local::disk::content;
use crate::local::helper::mount_calls;
use crate::local::helper::order::{Disk, Start};
use crate::local::helper::{volumes, with_context};
use crate::local::host::loop_device::FileIdentity;
use crate::local::host::{files, xfs};

/// A file that reserves space on the disk, outside of the layers, where the instance does not see it.
const RESERVED_FILE: &str = "room";

/// The maximum reserved space.
const MAX_RESERVED: u64 = 16 << 20;

/// Creates a detached mount of the disk.
pub(super) fn mount_disk(order: &Start) -> io::Result<OwnedFd> {
    match &order.disk {
        Disk::Directory(path) => {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(CWD, path, flags)?;
            mount_calls::set_mount_attributes(&tree, MOUNT_ATTR_NODEV, None)?;
            Ok(tree)
        }
        Disk::Device { device, number, file } => mount_device(device, *number, *file),
    }
}

/// Moves the mount to its place, and creates what a new disk needs. The reserved space is released, so that a full disk
/// has a little space.
pub(super) fn place_disk(order: &Start, tree: &OwnedFd, at: &str) -> io::Result<()> {
    move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let at = Path::new(at);
    files::ignore_missing(fs::remove_file(at.join(RESERVED_FILE)))?;
    content::create_layers(at, &order.hostname, order.id_base)
}

/// Reserves space for the next start: without any the kernel would mount the layers of a full disk read-only, and the
/// tenant could not free space. Half of the free space stays available for the guest.
pub(super) fn reserve_disk_space(at: &str) -> io::Result<()> {
    let free = statvfs(at)?;
    let length = (free.f_bavail.saturating_mul(free.f_frsize) / 2).min(MAX_RESERVED);
    let file = File::create(Path::new(at).join(RESERVED_FILE))?;
    match fallocate(&file, FallocateFlags::empty(), 0, length) {
        // The free space may be less than was counted, and the filesystem of a plain directory may not support this.
        Ok(()) | Err(Errno::NOSPC | Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn mount_device(device: &Path, number: u64, file: FileIdentity) -> io::Result<OwnedFd> {
    let tree = xfs::mount_copy_detached(device).map_err(|error| {
        let damaged = xfs::is_damage(&error) || xfs::is_io_failure(&error);
        let words = if damaged { "the disk of the instance is damaged" } else { "the disk could not be mounted" };
        with_context(words)(error)
    })?;
    volumes::check_device(&tree, device, number, file)?;
    Ok(tree)
}
