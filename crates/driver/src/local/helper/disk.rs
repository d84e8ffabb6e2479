//! The disk of an instance, mounted for it alone.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use libcontainer::syscall::linux::MOUNT_ATTR_NODEV;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::order::{Disk, Start};
use super::{mounts, volumes};
use crate::local::disks::content;
use crate::local::filesystems;
use crate::local::volumes::Identity;

/// Mounts the disk where nobody sees it.
pub(super) fn mount(order: &Start) -> io::Result<OwnedFd> {
    match &order.disk {
        Disk::Directory(path) => {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(CWD, path, flags)?;
            mounts::change(&tree, MOUNT_ATTR_NODEV, None)?;
            Ok(tree)
        }
        Disk::Device { device, number, file } => mount_device(device, *number, *file),
    }
}

/// Puts it to its place, and makes what a new one has to have.
pub(super) fn place(order: &Start, tree: &OwnedFd, at: &str) -> io::Result<()> {
    move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    content::make(&PathBuf::from(at), &order.hostname, order.id_base)
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
