//! The disk of an instance, mounted for it alone.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use libcontainer::syscall::linux::MOUNT_ATTR_NODEV;
use rustix::fs::{CWD, FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::local::disks::content;
use crate::local::helper::mount_calls;
use crate::local::helper::order::{Disk, Start};
use crate::local::helper::volumes;
use crate::local::volumes::Identity;
use crate::local::{files, filesystems};

/// The file of the room that is set aside, beside the layers, where the instance does not see it.
const ROOM: &str = "room";

/// As much is set aside.
const MAX_ROOM: u64 = 16 << 20;

/// Mounts the disk where nobody sees it.
pub(in crate::local::helper) fn mount(order: &Start) -> io::Result<OwnedFd> {
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

/// Puts it to its place, and makes what a new one has to have. On a full one there is a little room afterwards.
pub(in crate::local::helper) fn place(order: &Start, tree: &OwnedFd, at: &str) -> io::Result<()> {
    move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let at = Path::new(at);
    files::gone(fs::remove_file(at.join(ROOM)))?;
    content::make(at, &order.hostname, order.id_base)
}

/// Sets room aside for the next start: without any the kernel would mount the layers of a full disk read-only, and who comes to
/// clear it up could not. Half of what there is stays for what the guest has to write now.
pub(super) fn set_room_aside(at: &str) -> io::Result<()> {
    let free = statvfs(at)?;
    let length = (free.f_bavail.saturating_mul(free.f_frsize) / 2).min(MAX_ROOM);
    let file = File::create(Path::new(at).join(ROOM))?;
    match fallocate(&file, FallocateFlags::empty(), 0, length) {
        // It may be less than was counted, and a directory of the machine need not know how.
        Ok(()) | Err(Errno::NOSPC | Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn mount_device(device: &Path, number: u64, file: Identity) -> io::Result<OwnedFd> {
    let tree = filesystems::mount_copy(device).map_err(|error| {
        let damaged = filesystems::is_damage(&error) || filesystems::is_failure(&error);
        let words = if damaged { "the disk of the instance is damaged" } else { "the disk could not be mounted" };
        io::Error::new(error.kind(), format!("{words}: {error}"))
    })?;
    volumes::check_device(&tree, device, number, file)?;
    Ok(tree)
}
